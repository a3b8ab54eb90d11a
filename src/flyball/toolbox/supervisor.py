"""Runs one command and sees to it that nothing of it is left: a program of its own, between Flyball and the command.

It needs only a little of the standard library, for every command waits until it has started. Its standard input is a
lifeline: when something comes, or when it ends because the process at its other end has died, the command is killed.
When the command ends, by itself or not, all that it has started is killed with it. On Linux that is everything: whose
parent dies is adopted by this process, also after `setsid` and a double fork, so whatever is left is below it, and when
it has no child any more there is nothing. On other systems it is the command's process group.
"""

import os
import select
import signal
import sys
import time
from io import FileIO

_PR_SET_CHILD_SUBREAPER = 36
_MAX_KILL_SECONDS = 8.0
"""For killing: what belongs to another user, or waits for a broken disk, does not die."""
_STOPPED_EXIT_CODE = 128 + signal.SIGTERM


def main(command: list[str]) -> int:
    """Run a command; the exit code is the command's, or 128 and the number of the signal that killed it."""
    _adopt_orphans()
    heard, bell = os.pipe()
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ignore_signal)
    child = _start(command)
    code = _wait_for_end(child, heard)
    _kill_all(child)
    return code


def kill_session(session: int) -> None:
    """Kill all that is left in a session whose supervisor was killed."""
    for _ in range(20):
        members = [pid for pid, (_, its_session) in _list_processes().items() if its_session == session]
        if not members:
            return
        _kill(members)
        time.sleep(0.01)


def _ignore_signal(number: int, frame: object) -> None:
    """A signal is heard through the pipe."""


def _start(command: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and so would the command
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _wait_for_end(child: int, wakeup_fd: int) -> int:
    """Wait until the command has ended, or must."""
    while True:
        ready, _, _ = select.select([0, wakeup_fd], [], [])
        if 0 in ready or set(os.read(wakeup_fd, 4096)) - {signal.SIGCHLD}:
            return _STOPPED_EXIT_CODE
        ended, _ = _reap_children()
        if child in ended:
            code = os.waitstatus_to_exitcode(ended[child])
            return code if code >= 0 else 128 - code


def _kill_all(group: int) -> None:
    until = time.monotonic() + _MAX_KILL_SECONDS
    while time.monotonic() < until:
        _kill([-group, *_find_descendants(os.getpid())])
        if not _reap_children()[1]:
            return
        time.sleep(0.005)


def _reap_children() -> "tuple[dict[int, int], bool]":
    """Children that have ended, with their status; and whether there are others."""
    ended: dict[int, int] = {}
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    except ChildProcessError:
        return ended, False
    return ended, True


def _find_descendants(root: int) -> "list[int]":
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in _list_processes().items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:  # which grows meanwhile
        found.extend(children.get(pid, ()))
    return found


def _list_processes() -> "dict[int, tuple[int, int]]":
    """Parent and session of every process that lives and can be seen; none where the system has no /proc."""
    found: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc") if sys.platform == "linux" else ():  # noqa: PTH208
        try:
            with FileIO(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(b")")[2].split()  # its name, before that, may have blanks and brackets
            if fields[0] != b"Z":  # which is dead, and waits for its parent to be told
                found[int(name)] = (int(fields[1]), int(fields[3]))
        except (OSError, ValueError, IndexError):  # it is no process, or has gone
            continue
    return found


def _kill(pids: "list[int]") -> None:
    """Kill processes; of a negative number, a group."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:  # it has gone, or is another user's
            continue


def _adopt_orphans() -> None:
    """Have whoever below loses their parent become a child of this process."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

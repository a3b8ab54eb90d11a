"""Program that runs a command and kills every process it started.

Flyball starts this program, and the program starts the command. It imports little of the standard library, because
every command waits for its start. The first argument is the file descriptor of a control pipe, the rest is the command:

- `0`: standard input is the control pipe, and the command gets no input.
- another number: the command has the standard streams for itself.
- a number and `+`: the command also stays in the process group of Flyball, so that it has the terminal, with its
  signals, its job control and the other programs of a pipeline.

A byte in `SIGNALS` on the control pipe sends that signal to the command. `T` sends SIGTERM to all its processes. Any
other byte kills the command, and so does the end of the pipe, which means that Flyball has died.

When the command ends, by itself or not, the supervisor kills all processes that it started. On Linux these are all of
them: the supervisor is a subreaper, so it adopts every orphan, even after `setsid` and a double fork. Once it has no
children, nothing is left. On other systems it kills the command's process group.
"""

import os
import select
import signal
import sys
import time
from io import FileIO

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module would double the time to start
    from collections.abc import Sequence

_PR_SET_CHILD_SUBREAPER = 36
_MAX_KILL_SECONDS = 8.0
"""Limit for killing. Processes of other users, or blocked on a broken disk, do not die."""
TERMINATE = b"t"
"""Control byte that sends SIGTERM to the command and lets it end by itself."""
TERMINATE_ALL = b"T"
"""Control byte that sends SIGTERM to the command and everything it started."""
SIGNALS = {
    TERMINATE: signal.SIGTERM,
    b"i": signal.SIGINT,
    b"q": signal.SIGQUIT,
    b"h": signal.SIGHUP,
    b"1": signal.SIGUSR1,
    b"2": signal.SIGUSR2,
}
"""Control bytes that send a signal to the command."""
STOP = b"."
"""Control byte that kills the command and everything it started."""
_STOPPED_EXIT_CODE = 128 + signal.SIGTERM


def main(control_fd: int, command: "list[str]", shares_group: bool = False) -> int:
    """Run a command and return its exit code.

    For a command that was killed it is 128 plus the number of the signal. With `shares_group`, signals of the terminal
    reach the command by themselves, so the supervisor only outlives them.
    """
    _adopt_orphans()
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, _ignore_signal)
    stopping = {signal.SIGTERM} if shares_group else {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
    os.set_inheritable(control_fd, False)
    child = _start(control_fd, command, shares_group)
    if control_fd:
        _close_standard_streams()  # the ends that the command has must be the only ones
    target = child if shares_group else -child
    code = _wait_for_end(child, target, control_fd, wakeup_read, stopping)
    _kill_all(target)
    return code


def build_command(control_fd: int, command: "Sequence[str]", shares_group: bool = False) -> "list[str]":
    """Return the command line that runs a command under a supervisor."""
    return [sys.executable, "-I", "-S", __file__, f"{control_fd}{'+' if shares_group else ''}", *command]


def kill_session(session: int) -> None:
    """Kill all processes of a session whose supervisor was killed."""
    for _ in range(20):
        members = [pid for pid, (_, its_session) in _list_processes().items() if its_session == session]
        if not members:
            return
        _kill(members)
        time.sleep(0.01)


def _ignore_signal(number: int, frame: object) -> None:
    """Do nothing: signals are read from the wakeup pipe."""


def _start(control_fd: int, command: "list[str]", shares_group: bool) -> int:
    child = os.fork()
    if child:
        return child
    try:
        if not shares_group:
            os.setpgid(0, 0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the command would inherit that
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        if control_fd == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _close_standard_streams() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _wait_for_end(child: int, target: int, control_fd: int, wakeup_fd: int, stopping: "set[signal.Signals]") -> int:
    """Wait until the command ends or must stop; return the exit code."""
    while True:
        ready, _, _ = select.select([control_fd, wakeup_fd], [], [])
        if control_fd in ready:
            byte = os.read(control_fd, 1)
            if byte == TERMINATE_ALL:
                _kill([target, *_find_descendants(os.getpid())], signal.SIGTERM)
            elif byte in SIGNALS:
                _kill([target], SIGNALS[byte])
            else:
                return _STOPPED_EXIT_CODE
            continue
        if set(os.read(wakeup_fd, 4096)) & stopping:
            return _STOPPED_EXIT_CODE
        ended, _ = _reap_children()
        if child in ended:
            code = os.waitstatus_to_exitcode(ended[child])
            return code if code >= 0 else 128 - code


def _kill_all(target: int) -> None:
    deadline = time.monotonic() + _MAX_KILL_SECONDS
    while time.monotonic() < deadline:
        _kill([target, *_find_descendants(os.getpid())])
        if not _reap_children()[1]:
            return
        time.sleep(0.005)


def _reap_children() -> "tuple[dict[int, int], bool]":
    """Reap ended children; return their status and whether others live."""
    ended: dict[int, int] = {}
    try:
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = child[1]
    except ChildProcessError:
        return ended, False
    return ended, True


def _find_descendants(root: int) -> "list[int]":
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in _list_processes().items():
        children.setdefault(parent, []).append(pid)
    descendants = list(children.get(root, ()))
    for pid in descendants:  # the list grows during the loop
        descendants.extend(children.get(pid, ()))
    return descendants


def _list_processes() -> "dict[int, tuple[int, int]]":
    """Return parent and session of every visible live process.

    Empty without /proc.
    """
    processes: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc") if sys.platform == "linux" else ():  # noqa: PTH208
        try:
            with FileIO(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(b")")[2].split()  # skip the name, which may contain anything
            if fields[0] != b"Z":  # a zombie is dead, and waits for its parent
                processes[int(name)] = (int(fields[1]), int(fields[3]))
        except (OSError, ValueError, IndexError):  # not a process, or it has ended
            continue
    return processes


def _kill(pids: "list[int]", number: int = signal.SIGKILL) -> None:
    """Send a signal to processes. A negative number means a process group."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:  # it has ended, or belongs to another user
            continue


def _adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1].rstrip("+")), sys.argv[2:], sys.argv[1].endswith("+")))

// Keeps connections of node on this machine, and reports each other one to the stand-in for the outside.
// It is for programs whose proxy is taken out: `node --require exec_outside.cjs`.
const net = require("node:net");

const { connect } = net.Socket.prototype;
const port = Number(process.env.FLYBALL_STAND_IN);

net.Socket.prototype.connect = function (...given) {
  const [options, callback] = net._normalizeArgs(Array.isArray(given[0]) ? given[0] : given);
  const host = options.host ?? "localhost";
  if (options.path || ["localhost", "127.0.0.1", "::1"].includes(host)) return connect.apply(this, given);
  const report = new net.Socket();
  report.on("error", () => {});
  connect.call(report, { port, host: "127.0.0.1" }, () => report.end(`CONNECT ${host}:${options.port} HTTP/1.1\r\n\r\n`));
  return connect.call(this, { ...options, host: "127.0.0.1", port: 1 }, callback); // nothing listens there
};

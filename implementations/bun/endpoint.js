// An endpoint of bun (lsquic) by the contract of docs/matrix.md: HTTP/3.
const name = (path) => path.split("/").pop();

if (process.env.ROLE === "server") {
  Bun.serve({
    port: 443,
    hostname: "0.0.0.0",
    http3: true,
    http1: false, // no TCP listener: nobody falls back to it unnoticed
    idleTimeout: 0,
    tls: { cert: Bun.file("/certs/cert.pem"), key: Bun.file("/certs/priv.key") },
    async fetch(request) {
      const file = Bun.file("/www/" + name(new URL(request.url).pathname));
      return (await file.exists()) ? new Response(file) : new Response("no such file", { status: 404 });
    },
  });
  process.on("SIGTERM", () => process.exit(0));
} else {
  for (const address of process.env.REQUESTS.split(" ")) {
    const response = await fetch(address, { protocol: "http3" });
    if (!response.ok) throw new Error(`${address}: ${response.status}`);
    const sink = Bun.file("/downloads/" + name(new URL(address).pathname)).writer();
    for await (const piece of response.body) {
      sink.write(piece);
      await sink.flush();
    }
    await sink.end();
  }
  process.exit(0);
}

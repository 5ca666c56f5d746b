import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;
import tech.kwik.core.QuicClientConnection;
import tech.kwik.core.QuicConnection;
import tech.kwik.core.QuicStream;
import tech.kwik.core.log.NullLogger;
import tech.kwik.core.server.ApplicationProtocolConnection;
import tech.kwik.core.server.ApplicationProtocolConnectionFactory;
import tech.kwik.core.server.ServerConnectionConfig;
import tech.kwik.core.server.ServerConnector;
import tech.kwik.flupke.Http3ClientBuilder;
import tech.kwik.flupke.server.Http3ApplicationProtocolFactory;

/** An endpoint of kwik and flupke by the contract of docs/matrix.md: HTTP/3 and HTTP/0.9 over QUIC (hq-interop). */
public final class Endpoint {
    private static final Path WWW = Path.of("/www");
    private static final Path DOWNLOADS = Path.of("/downloads");
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    public static void main(String[] arguments) throws Exception {
        boolean h3 = System.getenv("PROTOCOL").equals("h3");
        if (System.getenv("ROLE").equals("server")) {
            serve(h3);
        } else {
            String[] requests = System.getenv("REQUESTS").split(" ");
            if (h3) {
                fetchHttp3(requests);
            } else {
                fetchHq(requests);
            }
            System.exit(0);
        }
    }

    /** A knob in bytes; null leaves the library's default. */
    private static Long bytes(String name) {
        String text = System.getenv(name);
        return text == null || text.isEmpty() ? null : Long.valueOf(text);
    }

    private static void serve(boolean h3) throws Exception {
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream file = Files.newInputStream(Path.of("/tmp/keys.p12"))) {
            keys.load(file, "endpoint".toCharArray());
        }
        ServerConnectionConfig.Builder configuration =
            ServerConnectionConfig.builder().maxIdleTimeoutInSeconds(30).maxOpenPeerInitiatedBidirectionalStreams(100)
                .maxOpenPeerInitiatedUnidirectionalStreams(100);
        Long window = bytes("MAX_STREAM_DATA");
        if (window != null) {
            configuration.maxBidirectionalStreamBufferSize(window);
        }
        ServerConnector server = ServerConnector.builder().withPort(443)
            .withKeyStore(keys, keys.aliases().nextElement(), "endpoint".toCharArray())
            .withConfiguration(configuration.build()).withLogger(new NullLogger()).build();
        if (h3) {
            server.registerApplicationProtocol("h3", new Http3ApplicationProtocolFactory((request, response) -> {
                Path file = WWW.resolve(Path.of(request.path()).getFileName());
                if (!Files.isRegularFile(file)) {
                    response.setStatus(404);
                    return;
                }
                response.setStatus(200);
                try (OutputStream body = response.getOutputStream()) {
                    Files.copy(file, body);
                }
            }));
        } else {
            server.registerApplicationProtocol("hq-interop", new Http09());
        }
        server.start();
    }

    /** Answers each stream with a file. */
    private static final class Http09 implements ApplicationProtocolConnectionFactory {
        @Override
        public ApplicationProtocolConnection createConnection(String protocol, QuicConnection connection) {
            return new ApplicationProtocolConnection() {
                @Override
                public void acceptPeerInitiatedStream(QuicStream stream) {
                    new Thread(() -> answer(stream)).start();
                }
            };
        }

        @Override
        public int maxConcurrentPeerInitiatedBidirectionalStreams() {
            return 100;
        }

        private static void answer(QuicStream stream) {
            try {
                String line = new String(stream.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
                String path = line.trim().replaceFirst("^GET ", "");
                try (OutputStream body = stream.getOutputStream()) {
                    Files.copy(WWW.resolve(Path.of(path).getFileName()), body);
                }
            } catch (IOException error) {
                System.err.println(error);
                stream.resetStream(1);
            }
        }
    }

    private static X509TrustManager trust() throws Exception {
        KeyStore trusted = trustStore();
        TrustManagerFactory factory = TrustManagerFactory.getInstance("PKIX");
        factory.init(trusted);
        return (X509TrustManager) factory.getTrustManagers()[0];
    }

    private static KeyStore trustStore() throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream file = Files.newInputStream(Path.of("/certs/ca.pem"))) {
            trusted.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        return trusted;
    }

    private static Path target(URI address) {
        return DOWNLOADS.resolve(Path.of(address.getPath()).getFileName());
    }

    private static void fetchHttp3(String[] requests) throws Exception {
        Http3ClientBuilder builder = new Http3ClientBuilder();
        builder.trustManager(trust()).connectTimeout(PATIENCE);
        Long window = bytes("MAX_STREAM_DATA");
        if (window != null) {
            builder.receiveBufferSize(window);
        }
        var client = builder.build();
        for (String request : requests) {
            URI address = URI.create(request);
            var response = client.send(HttpRequest.newBuilder(address).build(), HttpResponse.BodyHandlers.ofFile(target(address)));
            if (response.statusCode() != 200) {
                throw new IOException(request + ": " + response.statusCode());
            }
        }
    }

    private static void fetchHq(String[] requests) throws Exception {
        URI first = URI.create(requests[0]);
        var builder = QuicClientConnection.newBuilder().uri(first).applicationProtocol("hq-interop")
            .connectTimeout(PATIENCE).customTrustStore(trustStore()).logger(new NullLogger())
            .secrets(Path.of(System.getenv("SSLKEYLOGFILE")));
        Long window = bytes("MAX_STREAM_DATA");
        if (window != null) {
            builder.defaultStreamReceiveBufferSize(window);
        }
        QuicClientConnection connection = builder.build();
        connection.connect();
        for (String request : requests) {
            URI address = URI.create(request);
            QuicStream stream = connection.createStream(true);
            try (OutputStream out = stream.getOutputStream()) {
                out.write(("GET " + address.getPath() + "\r\n").getBytes(StandardCharsets.US_ASCII));
            }
            Files.copy(stream.getInputStream(), target(address));
        }
        connection.closeAndWait();
    }
}

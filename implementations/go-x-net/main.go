// An endpoint of golang.org/x/net/quic by the contract of docs/matrix.md: HTTP/0.9 over QUIC (hq-interop).
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/net/quic"
	"golang.org/x/net/quic/qlog"
)

const (
	www       = "/www"
	downloads = "/downloads"
)

func main() {
	log.SetFlags(log.Lmicroseconds)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var err error
	if os.Getenv("ROLE") == "server" {
		err = serve(ctx)
	} else {
		err = fetchAll(ctx, strings.Fields(os.Getenv("REQUESTS")))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// bytesOf reads a knob; 0 is the library's default.
func bytesOf(name string) int64 {
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	value, err := strconv.ParseInt(text, 10, 62)
	if err != nil {
		log.Fatalf("%s=%q: give bytes as a whole number", name, text)
	}
	return value
}

func config(tlsConfig *tls.Config) *quic.Config {
	tlsConfig.MinVersion = tls.VersionTLS13
	tlsConfig.NextProtos = []string{"hq-interop"}
	if name := os.Getenv("SSLKEYLOGFILE"); name != "" {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			log.Fatal(err)
		}
		tlsConfig.KeyLogWriter = file
	}
	made := &quic.Config{
		TLSConfig:                tlsConfig,
		MaxConnReadBufferSize:    bytesOf("MAX_DATA"),
		MaxStreamReadBufferSize:  bytesOf("MAX_STREAM_DATA"),
		MaxStreamWriteBufferSize: bytesOf("SEND_BUFFER"),
	}
	if directory := os.Getenv("QLOGDIR"); directory != "" {
		made.QLogLogger = slog.New(qlog.NewJSONHandler(qlog.HandlerOptions{Dir: directory}))
	}
	return made
}

func serve(ctx context.Context) error {
	certificate, err := tls.LoadX509KeyPair("/certs/cert.pem", "/certs/priv.key")
	if err != nil {
		return err
	}
	endpoint, err := quic.Listen("udp", ":443", config(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	if err != nil {
		return err
	}
	for {
		connection, err := endpoint.Accept(ctx)
		if err != nil {
			return nil
		}
		go answerAll(ctx, connection)
	}
}

func answerAll(ctx context.Context, connection *quic.Conn) {
	for {
		stream, err := connection.AcceptStream(ctx)
		if err != nil {
			connection.Close()
			return
		}
		go func() {
			if err := answer(stream); err != nil {
				log.Print(err)
				stream.Reset(1)
			}
		}()
	}
}

// answer is HTTP/0.9: a line with the path, and the file until the stream ends.
func answer(stream *quic.Stream) error {
	line, err := bufio.NewReader(io.LimitReader(stream, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	name := strings.TrimSpace(strings.TrimPrefix(line, "GET "))
	file, err := os.Open(filepath.Join(www, path.Clean("/"+name)))
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(stream, file); err != nil {
		return err
	}
	stream.CloseWrite()
	return nil
}

func fetchAll(ctx context.Context, requests []string) error {
	pool := x509.NewCertPool()
	authority, err := os.ReadFile("/certs/ca.pem")
	if err != nil {
		return err
	}
	pool.AppendCertsFromPEM(authority)
	endpoint, err := quic.Listen("udp", ":0", nil)
	if err != nil {
		return err
	}
	var connection *quic.Conn
	for _, address := range requests {
		target, err := url.Parse(address)
		if err != nil {
			return err
		}
		if connection == nil {
			host := target.Host
			if target.Port() == "" {
				host = net.JoinHostPort(host, "443")
			}
			settings := config(&tls.Config{RootCAs: pool, ServerName: target.Hostname()})
			if connection, err = endpoint.Dial(ctx, "udp", host, settings); err != nil {
				return err
			}
			defer connection.Close()
		}
		if err := fetch(ctx, connection, target.Path); err != nil {
			return err
		}
	}
	return nil
}

func fetch(ctx context.Context, connection *quic.Conn, name string) error {
	stream, err := connection.NewStream(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stream, "GET %s\r\n", name); err != nil {
		return err
	}
	stream.CloseWrite()
	file, err := os.Create(filepath.Join(downloads, path.Base(name)))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, stream)
	return err
}

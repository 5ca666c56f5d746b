// An endpoint of quic-go by the contract of docs/matrix.md: HTTP/3 and HTTP/0.9 over QUIC (hq-interop).
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
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
)

const (
	www       = "/www"
	downloads = "/downloads"
)

func main() {
	log.SetFlags(log.Lmicroseconds)
	protocol := "hq-interop"
	if os.Getenv("TESTCASE") == "http3" {
		protocol = http3.NextProtoH3
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var err error
	if os.Getenv("ROLE") == "server" {
		err = serve(ctx, protocol)
	} else {
		err = fetchAll(ctx, protocol, strings.Fields(os.Getenv("REQUESTS")))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// bytesOf reads a knob; 0 is the library's default.
func bytesOf(name string) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	value, err := strconv.ParseUint(text, 10, 62)
	if err != nil {
		log.Fatalf("%s=%q: give bytes as a whole number", name, text)
	}
	return value
}

func quicConfig() *quic.Config {
	connection, stream := bytesOf("MAX_DATA"), bytesOf("MAX_STREAM_DATA")
	return &quic.Config{
		InitialConnectionReceiveWindow: connection,
		MaxConnectionReceiveWindow:     connection,
		InitialStreamReceiveWindow:     stream,
		MaxStreamReceiveWindow:         stream,
		Tracer:                         qlog.DefaultConnectionTracer,
	}
}

func keyLog() io.Writer {
	name := os.Getenv("SSLKEYLOGFILE")
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	return file
}

func serve(ctx context.Context, protocol string) error {
	certificate, err := tls.LoadX509KeyPair("/certs/cert.pem", "/certs/priv.key")
	if err != nil {
		return err
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{certificate},
		NextProtos:   []string{protocol},
		KeyLogWriter: keyLog(),
	}
	if protocol == http3.NextProtoH3 {
		server := http3.Server{Addr: ":443", Handler: http.FileServer(http.Dir(www)), TLSConfig: config, QUICConfig: quicConfig()}
		go func() { <-ctx.Done(); server.Close() }()
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	listener, err := quic.ListenAddr(":443", config, quicConfig())
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept(ctx)
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
			return
		}
		go func() {
			if err := answer(stream); err != nil {
				log.Print(err)
				stream.CancelWrite(1)
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
	return stream.Close()
}

func fetchAll(ctx context.Context, protocol string, requests []string) error {
	pool := x509.NewCertPool()
	authority, err := os.ReadFile("/certs/ca.pem")
	if err != nil {
		return err
	}
	pool.AppendCertsFromPEM(authority)
	config := &tls.Config{RootCAs: pool, NextProtos: []string{protocol}, KeyLogWriter: keyLog()}
	if protocol == http3.NextProtoH3 {
		transport := &http3.Transport{TLSClientConfig: config, QUICConfig: quicConfig()}
		defer transport.Close()
		for _, request := range requests {
			if err := fetchHTTP3(ctx, transport, request); err != nil {
				return err
			}
		}
		return nil
	}
	return fetchHQ(ctx, config, requests)
}

func fetchHTTP3(ctx context.Context, transport http.RoundTripper, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, response.Status)
	}
	return store(address, response.Body)
}

func fetchHQ(ctx context.Context, config *tls.Config, requests []string) error {
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
			if connection, err = quic.DialAddr(ctx, host, config, quicConfig()); err != nil {
				return err
			}
			defer connection.CloseWithError(0, "")
		}
		stream, err := connection.OpenStreamSync(ctx)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(stream, "GET %s\r\n", target.Path); err != nil {
			return err
		}
		if err := stream.Close(); err != nil {
			return err
		}
		if err := store(address, stream); err != nil {
			return err
		}
	}
	return nil
}

func store(address string, body io.Reader) error {
	file, err := os.Create(filepath.Join(downloads, path.Base(address)))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, body)
	return err
}

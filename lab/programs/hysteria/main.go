// Hysteria 2 between a terminal and a gateway: a client that takes what its host routes to it (TPROXY), and a server.
//
//	hysteria server --listen 10.0.0.2:443 --certificate FILE --key FILE --password FILE
//	hysteria client --server 10.0.0.2:443 --name NAME --authority FILE --password FILE --tproxy 7896
//
// The protocol is that of github.com/apernet/hysteria/core/v2; this program reads the command line, and relays.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/apernet/hysteria/core/v2/client"
	"github.com/apernet/hysteria/core/v2/server"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hysteria:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("say `server` or `client`")
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	password := flags.String("password", "", "file with the password of both ends")
	switch arguments[0] {
	case "server":
		listen := flags.String("listen", "", "address and UDP port")
		certificate := flags.String("certificate", "", "file of the server's certificate")
		key := flags.String("key", "", "file of its key")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		return serve(*listen, *certificate, *key, *password)
	case "client":
		remote := flags.String("server", "", "address and UDP port")
		name := flags.String("name", "", "name in the server's certificate")
		authority := flags.String("authority", "", "file with the certificate that the server's has to be signed by")
		port := flags.Int("tproxy", 0, "port to which packets are given by TPROXY, TCP and UDP")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		return connect(*remote, *name, *authority, *password, *port)
	}
	return fmt.Errorf("there is no %q; say `server` or `client`", arguments[0])
}

// onePassword lets in who knows the password.
type onePassword string

func (p onePassword) Authenticate(_ net.Addr, auth string, _ uint64) (bool, string) {
	return auth == string(p), "terminal"
}

func serve(listen, certificate, key, passwordFile string) error {
	secret, err := read(passwordFile)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	socket, err := net.ListenPacket("udp4", listen)
	if err != nil {
		return err
	}
	instance, err := server.NewServer(&server.Config{
		TLSConfig:     server.TLSConfig{Certificates: []tls.Certificate{pair}},
		Conn:          socket,
		Authenticator: onePassword(secret),
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return instance.Serve()
}

func connect(remote, name, authority, passwordFile string, port int) error {
	secret, err := read(passwordFile)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate", authority)
	}
	address, err := net.ResolveUDPAddr("udp4", remote)
	if err != nil {
		return err
	}
	session, info, err := client.NewClient(&client.Config{
		ServerAddr: address,
		Auth:       secret,
		TLSConfig:  client.TLSConfig{ServerName: name, RootCAs: roots},
	})
	if err != nil {
		return err
	}
	defer session.Close()
	if !info.UDPEnabled {
		return errors.New("the server does not carry UDP")
	}
	return intercept(session, port)
}

func read(file string) (string, error) {
	text, err := os.ReadFile(file)
	return strings.TrimSpace(string(text)), err
}

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/apernet/hysteria/core/v2/client"
)

const (
	mostDatagram = 65535
	mostFlows    = 4096
	idle         = 60 * time.Second
)

// intercept carries what TPROXY gives to a port until listening fails.
func intercept(session client.Client, port int) error {
	transparent := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failure error
		err := raw.Control(func(fd uintptr) {
			failure = errors.Join(
				syscall.SetsockoptInt(int(fd), syscall.SOL_IP, syscall.IP_TRANSPARENT, 1),
				syscall.SetsockoptInt(int(fd), syscall.SOL_IP, syscall.IP_RECVORIGDSTADDR, 1),
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
			)
		})
		return errors.Join(err, failure)
	}}
	local := fmt.Sprintf("0.0.0.0:%d", port)
	listener, err := transparent.Listen(context.Background(), "tcp4", local)
	if err != nil {
		return err
	}
	packets, err := transparent.ListenPacket(context.Background(), "udp4", local)
	if err != nil {
		return err
	}
	go (&datagrams{session: session, transparent: transparent, flows: map[flow]*relay{}}).run(packets.(*net.UDPConn))
	fmt.Println("ready")
	for {
		accepted, err := listener.Accept()
		if err != nil {
			return err
		}
		go carry(session, accepted.(*net.TCPConn))
	}
}

// carry relays one TCP connection; its local address is where it was going to.
func carry(session client.Client, near *net.TCPConn) {
	defer near.Close()
	far, err := session.TCP(near.LocalAddr().String())
	if err != nil {
		near.SetLinger(0)
		return
	}
	defer far.Close()
	done := make(chan struct{}, 2)
	go func() {
		io.Copy(far, near)
		if half, ok := far.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
		done <- struct{}{}
	}()
	go func() {
		io.Copy(near, far)
		near.CloseWrite()
		done <- struct{}{}
	}()
	// The core cannot close one direction of a stream: the end of the far side ends both.
	<-done
	near.SetReadDeadline(time.Now().Add(time.Second))
	<-done
}

type flow struct{ from, to netip.AddrPort }

type relay struct {
	far  client.HyUDPConn
	used time.Time
}

// datagrams are the UDP flows that TPROXY gave to the client.
type datagrams struct {
	session     client.Client
	transparent net.ListenConfig
	lock        sync.Mutex
	flows       map[flow]*relay
}

func (d *datagrams) run(packets *net.UDPConn) {
	data, control := make([]byte, mostDatagram), make([]byte, 256)
	for {
		count, many, _, from, err := packets.ReadMsgUDPAddrPort(data, control)
		if err != nil {
			return
		}
		to, ok := originalDestination(control[:many])
		if !ok {
			continue
		}
		key := flow{netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), to}
		if found := d.find(key); found != nil {
			found.far.Send(data[:count], to.String())
		}
	}
}

func (d *datagrams) find(key flow) *relay {
	d.lock.Lock()
	defer d.lock.Unlock()
	if found, ok := d.flows[key]; ok {
		found.used = time.Now()
		return found
	}
	for other, each := range d.flows {
		if time.Since(each.used) > idle {
			each.far.Close()
			delete(d.flows, other)
		}
	}
	if len(d.flows) >= mostFlows {
		return nil
	}
	far, err := d.session.UDP()
	if err != nil {
		return nil
	}
	made := &relay{far: far, used: time.Now()}
	d.flows[key] = made
	go d.answer(key, far)
	return made
}

// answer sends what comes back from the address that was asked.
func (d *datagrams) answer(key flow, far client.HyUDPConn) {
	near, err := d.transparent.ListenPacket(context.Background(), "udp4", key.to.String())
	if err != nil {
		return
	}
	defer near.Close()
	to := net.UDPAddrFromAddrPort(key.from)
	for {
		data, _, err := far.Receive()
		if err != nil {
			return
		}
		near.WriteTo(data, to)
	}
}

func originalDestination(control []byte) (netip.AddrPort, bool) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for _, each := range messages {
		if each.Header.Level == syscall.SOL_IP && each.Header.Type == syscall.IP_RECVORIGDSTADDR && len(each.Data) >= 8 {
			address := netip.AddrFrom4([4]byte(each.Data[4:8]))
			return netip.AddrPortFrom(address, binary.BigEndian.Uint16(each.Data[2:4])), true
		}
	}
	return netip.AddrPort{}, false
}

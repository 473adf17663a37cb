// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/leak"
)

// The environment of a child process: the server to be, and "once" for a single response.
const (
	serverVariable = "XDSLB_HOSTILE_SERVER"
	onceVariable   = "XDSLB_HOSTILE_ONCE"
)

// lifetime ends a child process whose parent has not.
const lifetime = 5 * time.Minute

func TestMain(m *testing.M) {
	name := os.Getenv(serverVariable)
	if name == "" {
		leak.VerifyTestMain(m)
		return
	}
	if err := serve(scenarioOf(name), os.Getenv(onceVariable) != ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// counts are of a server.
type counts struct {
	requests, answers, nacks, responses atomic.Int64 // answers are ACKs and NACKs of the scenario's type
	bytes, largest                      atomic.Int64 // of responses
}

// serve prints its address, and its counts for each line that it reads, until its input ends.
func serve(s *scenario, once bool) error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	a := &ads{scenario: s, once: once}
	g := grpc.NewServer(s.options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, a)
	if s.response != nil {
		s.response(0) // which takes long if it is large; most keep it
	}
	fmt.Println(lis.Addr())
	go func() {
		for in := bufio.NewReader(os.Stdin); ; {
			if _, err := in.ReadString('\n'); err != nil {
				os.Exit(0)
			}
			c := &a.counts
			fmt.Println(c.requests.Load(), c.answers.Load(), c.nacks.Load(), c.responses.Load(), c.bytes.Load(), c.largest.Load())
		}
	}()
	time.AfterFunc(lifetime, func() { os.Exit(1) })
	return g.Serve(lis)
}

// ads serves the resources of a normal target, with the resources of one type replaced by the
// scenario's.
type ads struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	scenario *scenario
	once     bool
	counts   counts
}

// StreamAggregatedResources implements the state of the world variant.
func (a *ads) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	if a.scenario.delta {
		return a.UnimplementedAggregatedDiscoveryServiceServer.StreamAggregatedResources(stream)
	}
	return a.talk(stream, func() (r request, err error) {
		req, err := stream.Recv()
		return request{req.GetTypeUrl(), req.GetResponseNonce() == "", len(req.GetResourceNames()) > 0, req.GetErrorDetail() != nil}, err
	})
}

// DeltaAggregatedResources implements the incremental variant.
func (a *ads) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if !a.scenario.delta {
		return a.UnimplementedAggregatedDiscoveryServiceServer.DeltaAggregatedResources(stream)
	}
	return a.talk(stream, func() (r request, err error) {
		req, err := stream.Recv()
		return request{req.GetTypeUrl(), req.GetResponseNonce() == "", len(req.GetResourceNamesSubscribe()) > 0, req.GetErrorDetail() != nil}, err
	})
}

// request is the common part of both variants' requests.
type request struct {
	typ                     string
	first, subscribes, nack bool // first is one that answers no response
}

// talk serves a stream. Requests come on the caller's goroutine, and a scenario that does not
// wait for them sends on another one.
func (a *ads) talk(s grpc.ServerStream, receive func() (request, error)) error {
	stream := &sender{ServerStream: s}
	if a.scenario.ends {
		return io.ErrUnexpectedEOF
	}
	begun, seen := false, map[string]bool{}
	n := 0
	for {
		r, err := receive()
		if err != nil {
			return nil //nolint:nilerr // the client has ended the stream
		}
		a.counts.requests.Add(1)
		if r.nack {
			a.counts.nacks.Add(1)
		}
		if r.typ == a.scenario.typ && !r.first {
			a.counts.answers.Add(1)
		}
		switch {
		case r.typ != a.scenario.typ:
			if !seen[r.typ] {
				if err := a.send(stream, a.scenario.normal(r.typ)); err != nil {
					return err
				}
			}
			seen[r.typ] = true
		case a.once && begun:
		case a.scenario.each != nil && a.scenario.each(r):
			begun = true
			if err := a.send(stream, a.scenario.response(n)); err != nil {
				return err
			}
			n++
		case a.scenario.each == nil && !begun:
			begun = true
			if a.once {
				err = a.send(stream, a.scenario.response(0))
			} else {
				go a.flood(stream)
			}
			if err != nil {
				return err
			}
		}
	}
}

// A sender is a stream on which two goroutines may send. With gRPC's own one of them may wait
// for ever.
type sender struct {
	grpc.ServerStream
	mu sync.Mutex
}

func (s *sender) SendMsg(m any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ServerStream.SendMsg(m)
}

// flood sends responses without a pause until the stream ends.
func (a *ads) flood(stream grpc.ServerStream) {
	for i := 0; a.send(stream, a.scenario.response(i)) == nil; i++ {
		time.Sleep(a.scenario.pause)
	}
}

func (a *ads) send(stream grpc.ServerStream, m proto.Message) error {
	if m == nil {
		return nil
	}
	size := int64(proto.Size(m))
	a.counts.responses.Add(1)
	a.counts.bytes.Add(size)
	a.counts.largest.Store(max(size, a.counts.largest.Load()))
	return stream.SendMsg(m)
}

// child is a server in a process of its own.
type child struct {
	addr string
	in   io.Writer
	out  *bufio.Reader
}

// start starts a server. It ends with the test.
func start(t *testing.T, s *scenario, once bool) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverVariable+"="+s.name)
	if once {
		cmd.Env = append(cmd.Env, onceVariable+"=1")
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()         // it ends when its input does
		_ = cmd.Process.Kill() // it may be busy
		_ = cmd.Wait()
	})
	c := &child{in: in, out: bufio.NewReader(out)}
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c.addr = strings.TrimSpace(line)
	return c
}

// served has the counts of a server.
type served struct{ requests, answers, nacks, responses, bytes, largest int64 }

func (c *child) counts(t *testing.T) (s served) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in); err != nil {
		t.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &s.requests, &s.answers, &s.nacks, &s.responses, &s.bytes, &s.largest); err != nil {
		t.Fatal(err)
	}
	return s
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/resolver"
	_ "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	_ "github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

var stockFirst = flag.Bool("rollout.stockfirst", false, "stock is to register scheme xds before xdslb does")

// The control plane of all tests, each of which has its own targets. gRPC reads where the
// bootstrap is when the program starts, so TestMain runs the tests in another process.
var (
	control  *xdstest.Server
	requests clients
	lines    kit.Logs
)

func TestMain(m *testing.M) {
	if os.Getenv("XDSLB_ROLLOUT_TEST") == "" {
		os.Exit(again())
	}
	flag.Parse()
	slog.SetDefault(slog.New(&lines))
	var err error
	if control, err = xdstest.Start(xdstest.Options{OnRequest: requests.note}); err != nil {
		panic(err)
	}
	if file := os.Getenv("GRPC_XDS_BOOTSTRAP"); file == "" {
		// TestNoBootstrapForStock
	} else if err := os.WriteFile(file, bytes.Replace(control.Bootstrap("n"), []byte("{"), []byte(`{"server_listener_resource_name_template": "server/%s",`), 1), 0o600); err != nil {
		panic(err)
	}
	code := m.Run()
	control.Stop()
	os.Exit(code)
}

// again runs the test binary with a bootstrap in its environment.
func again() int {
	dir, err := os.MkdirTemp("", "rollout")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := command(filepath.Join(dir, "bootstrap.json"), os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

// command runs the test binary with a file for the bootstrap, or without a bootstrap if the name
// is empty.
func command(bootstrap string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "XDSLB_ROLLOUT_TEST=1", "GRPC_XDS_BOOTSTRAP="+bootstrap)
	return cmd
}

// TestOrder: the packages are initialised in the order that the run is about.
func TestOrder(t *testing.T) {
	last := fmt.Sprintf("%T", resolver.Get("xds"))
	if ours := strings.Contains(last, "integrate"); ours != *stockFirst {
		t.Errorf("scheme xds is %s's in the end; stock to be first: %v", last, *stockFirst)
	}
}

// clients remembers which clients ask for a Listener.
type clients struct {
	mu    sync.Mutex
	names map[string]string // node's user_agent_name by stream, sent once
	of    map[string][]string
}

func (c *clients) note(stream int64, req *discoveryv3.DiscoveryRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names, c.of = map[string]string{}, map[string][]string{}
	}
	id := fmt.Sprint(stream)
	if name := req.GetNode().GetUserAgentName(); name != "" {
		c.names[id] = name
	}
	if strings.HasSuffix(req.GetTypeUrl(), ".Listener") {
		for _, listener := range req.GetResourceNames() {
			if who := c.names[id]; !slices.Contains(c.of[listener], who) {
				c.of[listener] = append(c.of[listener], who)
			}
		}
	}
}

// asked returns the user agents that have requested a Listener so far, in order.
func (c *clients) asked(listener string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.of[listener], ", ")
}

const stockAgent, ourAgent = "gRPC Go", "xdslb"

// unique returns a target of the test's own, however often it runs.
func unique(t testing.TB) string {
	return fmt.Sprintf("%s.%d.test", strings.ToLower(strings.ReplaceAll(t.Name(), "/", ".")), targets.Add(1))
}

var targets atomic.Int64

// service has the control plane serve a service under the test's name, which change may
// change, and returns its name and backends.
func service(t testing.TB, n int, change func(*xdstest.Resources)) (string, []*xdstest.Backend) {
	t.Helper()
	name := unique(t)
	backends := xdstest.NewBackends(t, n, xdstest.BackendOptions{})
	r := xdstest.Service(name, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	if change != nil {
		change(&r)
	}
	kit.Must(t, control.Update(r))
	return name, backends
}

var plaintext = grpc.WithTransportCredentials(insecure.NewCredentials())

// call makes an RPC.
func call(t testing.TB, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{}, opts...)
	return err
}

// closing makes channels end with the test.
func closing(t testing.TB) func(*grpc.ClientConn, error) *grpc.ClientConn {
	return func(cc *grpc.ClientConn, err error) *grpc.ClientConn {
		t.Helper()
		kit.Must(t, err)
		t.Cleanup(func() { _ = cc.Close() })
		return cc
	}
}

// anyOf wraps a message.
func anyOf(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	kit.Must(t, err)
	return a
}

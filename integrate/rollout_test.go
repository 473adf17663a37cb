// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestDisabledWithoutStock: in a program without stock's xDS a channel that is not to be
// ours fails, whichever way it was made, and says why and what to do.
func TestDisabledWithoutStock(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	creds := grpc.WithTransportCredentials(insecure.NewCredentials())
	cfg := integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1}
	options, err := integrate.DialOptions(cfg)
	if err != nil {
		t.Fatal(err)
	}
	builder, err := integrate.NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "{") // which nobody reads
	for _, variables := range [][2]string{{"XDSLB_DISABLE", "dns:*, svc.rollback.test"}, {"XDSLB_ENABLE", "other"}} {
		t.Setenv("XDSLB_DISABLE", "")
		t.Setenv(variables[0], variables[1])
		for name, make := range map[string]func() (*grpc.ClientConn, error){
			"NewClient":       func() (*grpc.ClientConn, error) { return integrate.NewClient("xds:///svc.rollback.test", creds) },
			"NewClient xdslb": func() (*grpc.ClientConn, error) { return integrate.NewClient("xdslb:///svc.rollback.test", creds) },
			"blank import":    func() (*grpc.ClientConn, error) { return grpc.NewClient("xds:///svc.rollback.test", creds) },
			"DialOptions": func() (*grpc.ClientConn, error) {
				return grpc.NewClient("xds:///svc.rollback.test", append(options, creds)...)
			},
			"NewBuilder": func() (*grpc.ClientConn, error) {
				return grpc.NewClient("xds:///svc.rollback.test", grpc.WithResolvers(builder), creds)
			},
		} {
			cc, err := make()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			_, err = call(t, cc)
			for _, want := range []string{variables[0], "svc.rollback.test", "import google.golang.org/grpc/xds"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s with %v: error %v, want %q in it", name, variables, err, want)
				}
			}
			_ = cc.Close()
		}
	}
}

// TestMalformedPattern: a malformed pattern takes no service away. It is logged once as an
// error, and what the other patterns say counts.
func TestMalformedPattern(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(xdstest.NewBackends(t, 1, xdstest.BackendOptions{})...)}))
	for variable, value := range map[string]string{"XDSLB_DISABLE": "[e2e, other", "XDSLB_ENABLE": "e2e.[, other"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, value)
			for range 2 {
				cc := dial(t, control.Bootstrap("n"))
				if _, err := call(t, cc); err != nil {
					t.Error(err)
				}
				if s, err := integrate.StatusOf(cc); err != nil || s.Stock != "" {
					t.Errorf("status %+v, %v", s, err)
				}
			}
			logs.WantOne(t, variable+" has the malformed pattern", strconv.Quote(strings.TrimSuffix(value, ", other")))
		})
	}
	t.Setenv("XDSLB_DISABLE", "[e2e, "+target)
	if _, err := call(t, dial(t, control.Bootstrap("n"))); err == nil || !strings.Contains(err.Error(), `XDSLB_DISABLE has "`+target) {
		t.Errorf("beside a malformed pattern one that matches: %v", err)
	}
}

// TestDisabledBootstrap: the bootstrap of a program that has one of the variables need not
// be one that xdslb can read, until a channel is ours.
func TestDisabledBootstrap(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
	t.Setenv("XDSLB_DISABLE", "other")
	cc, err := integrate.NewClient("xds:///bootstrap.rollback.test", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	if _, err := call(t, cc); err == nil || !strings.Contains(err.Error(), "GRPC_XDS_BOOTSTRAP") {
		t.Errorf("RPC of a channel that is ours, without a bootstrap: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := integrate.WaitReady(ctx, cc, "/a/b"); err == nil || ctx.Err() != nil {
		t.Errorf("WaitReady: %v, want an error at once", err)
	}
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/lbpolicy"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestAcquire checks who shares a client, and how long it lives (D4).
func TestAcquire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		config := func(id string) *bootstrap.Config {
			cfg, err := bootstrap.Parse("test", []byte(`{"xds_servers": [`+serverDoc("nowhere")+`], "node": {"id": "`+t.Name()+id+`"}}`))
			if err != nil {
				t.Fatal(err)
			}
			return cfg
		}
		a, b, other := Acquire(config("1"), Options{}), Acquire(config("1"), Options{}), Acquire(config("2"), Options{})
		if a != b || a == other {
			t.Errorf("clients %p, %p and %p; want the first two to be the same", a, b, other)
		}
		a.Release()
		advance(time.Minute)
		if a.ctx.Err() != nil {
			t.Error("closed with a user left")
		}
		b.Release()
		advance(29 * time.Second)
		if again := Acquire(config("1"), Options{}); again != a {
			t.Error("a client that lingers was not taken up again")
		}
		advance(time.Minute)
		if a.ctx.Err() != nil {
			t.Error("closed with a user left")
		}
		a.Release()
		other.Release()
		<-a.done
		<-other.done
		fresh := Acquire(config("1"), Options{Linger: -1})
		if fresh == a {
			t.Error("a client that was closed was taken up again")
		}
		cancel := fresh.Watch("svc", "svc", &recorder{})
		fresh.Release()
		<-fresh.done
		cancel()
		fresh.Watch("svc", "svc", &recorder{})()
		if _, _, err := fresh.Conn(fresh.cfg.Servers[0].Key()); err == nil {
			t.Error("a channel from a client that is closed")
		}
	})
}

// TestAcquireOptions checks that no option is ignored because another client of the
// same bootstrap came first: where options differ, in whatever field, there are two
// clients, and where they are the same there is one.
func TestAcquireOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { acquireOptions(t) })
}

func acquireOptions(t *testing.T) {
	t.Helper()
	cfg, err := bootstrap.Parse("test", []byte(`{"xds_servers": [`+serverDoc("nowhere")+`], "node": {"id": "`+t.Name()+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	agent := grpc.WithUserAgent("a")
	shares := func(a, b Options) bool {
		one, two := Acquire(cfg, a), Acquire(cfg, b)
		one.Release()
		two.Release()
		advance(time.Hour)
		return one == two
	}
	// Something else than the default for each field.
	other := Options{
		DialOptions:         []grpc.DialOption{agent},
		Policies:            new(lbpolicy.Registry),
		DNS:                 manual.NewBuilderWithScheme("dns"),
		Filter:              func(string) *resource.FilterType { return nil },
		LocalCluster:        "fleet",
		DropDeleted:         true,
		Delta:               true,
		Linger:              -1,
		ResourceTimeout:     1,
		ConnectFailureAfter: 1,
		BackoffBase:         1,
		BackoffMax:          1,
		ReconnectSpread:     1,
		AcceptHostnames:     true,
		MaxHashBytes:        1,
		Logger:              slog.Default(),
	}
	fields := reflect.ValueOf(other)
	for i := range fields.NumField() {
		var one Options
		reflect.ValueOf(&one).Elem().Field(i).Set(fields.Field(i))
		name := fields.Type().Field(i).Name
		if fields.Field(i).IsZero() || shares(Options{}, one) != (name == "Logger") { // see TestLoggerIsShared
			t.Errorf("options that differ in %s share a client", name)
		}
		if !shares(one, one) {
			t.Errorf("equal options with %s do not share a client", name)
		}
	}
	for _, tt := range []struct {
		name   string
		a, b   Options
		shared bool
	}{
		{"the default, said", Options{}, Options{Linger: 30 * time.Second, BackoffBase: time.Second, DialOptions: []grpc.DialOption{}}, true},
		{"the same dial options in another slice", other, Options{
			DialOptions: []grpc.DialOption{agent}, Policies: other.Policies, DNS: other.DNS, Filter: other.Filter, LocalCluster: "fleet", DropDeleted: true, Delta: true,
			Linger: -1, ResourceTimeout: 1, ConnectFailureAfter: 1, BackoffBase: 1, BackoffMax: 1, ReconnectSpread: 1, MaxHashBytes: 1, AcceptHostnames: true,
		}, true},
		{"dial options that say the same", Options{DialOptions: []grpc.DialOption{agent}}, Options{DialOptions: []grpc.DialOption{grpc.WithUserAgent("a")}}, false},
		{"more of them", Options{DialOptions: []grpc.DialOption{agent}}, Options{DialOptions: []grpc.DialOption{agent, agent}}, false},
		{"what cannot be compared", Options{DNS: slicedDNS{}}, Options{DNS: slicedDNS{}}, false},
	} {
		if got := shares(tt.a, tt.b); got != tt.shared {
			t.Errorf("%s: shared %v, want %v", tt.name, got, tt.shared)
		}
	}
}

// slicedDNS is a resolver.Builder that cannot be compared.
type slicedDNS []resolver.Builder

func (slicedDNS) Scheme() string { return "dns" }
func (slicedDNS) Build(resolver.Target, resolver.ClientConn, resolver.BuildOptions) (resolver.Resolver, error) {
	return nil, errors.New("no names")
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/lbpolicy"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestAcquire checks who shares a client, and how long it lives (D4).
func TestAcquire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		config := func(id string) *bootstrap.Config {
			cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+serverDoc("nowhere")+`], "node": {"id": "`+t.Name()+id+`"}}`))
			kit.Must(t, err)
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
		cancel := fresh.view().Watch("svc", "svc", &recorder{})
		fresh.Release()
		<-fresh.done
		cancel()
		fresh.view().Watch("svc", "svc", &recorder{})()
		if _, _, err := fresh.Conn(fresh.cfg.Servers[0].Key()); err == nil {
			t.Error("a channel from a client that is closed")
		}
	})
}

// TestAcquireOptions checks that clients are shared unless an option requires another connection or
// accepts other resources (D4).
func TestAcquireOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { acquireOptions(t) })
}

func acquireOptions(t *testing.T) {
	t.Helper()
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+serverDoc("nowhere")+`], "node": {"id": "`+t.Name()+`"}}`))
	kit.Must(t, err)
	agent := grpc.WithUserAgent("a")
	shares := func(a, b Options) bool {
		one, two := Acquire(cfg, a), Acquire(cfg, b)
		one.Release()
		two.Release()
		advance(time.Hour)
		return one == two
	}
	// Other values than the default for each field.
	other := Options{
		DialOptions:         []grpc.DialOption{agent},
		Policies:            new(lbpolicy.Registry),
		DNS:                 manual.NewBuilderWithScheme("dns"),
		Filter:              func(string) *resource.FilterType { return nil },
		Delta:               true,
		Linger:              -1,
		ResourceTimeout:     1,
		ConnectFailureAfter: 1,
		BackoffBase:         1,
		BackoffMax:          1,
		ReconnectSpread:     1,
		AcceptHostnames:     true,
		Logger:              slog.Default(),
		TargetOptions:       TargetOptions{LocalCluster: "fleet", DropDeleted: true, MaxHashBytes: 1},
	}
	shared := []string{"Delta", "Linger", "ResourceTimeout", "ReconnectSpread", "Logger", "TargetOptions"}
	fields := reflect.ValueOf(other)
	for i := range fields.NumField() {
		var one Options
		reflect.ValueOf(&one).Elem().Field(i).Set(fields.Field(i))
		name := fields.Type().Field(i).Name
		if got, want := shares(Options{}, one), slices.Contains(shared, name); fields.Field(i).IsZero() || got != want {
			t.Errorf("options that differ in %s share a client: %v, want %v", name, got, want)
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
		{"explicit defaults", Options{}, Options{Linger: 30 * time.Second, BackoffBase: time.Second, DialOptions: []grpc.DialOption{}}, true},
		{"the same dial options in another slice", other, Options{
			DialOptions: []grpc.DialOption{agent}, Policies: other.Policies, DNS: other.DNS, Filter: other.Filter, Delta: true,
			Linger: -1, ResourceTimeout: 1, ConnectFailureAfter: 1, BackoffBase: 1, BackoffMax: 1, ReconnectSpread: 1, AcceptHostnames: true,
		}, true},
		{"dial options with equal effects", Options{DialOptions: []grpc.DialOption{agent}}, Options{DialOptions: []grpc.DialOption{grpc.WithUserAgent("a")}}, false},
		{"repeated dial options", Options{DialOptions: []grpc.DialOption{agent}}, Options{DialOptions: []grpc.DialOption{agent, agent}}, false},
		{"values that cannot be compared", Options{DNS: slicedDNS{}}, Options{DNS: slicedDNS{}}, false},
	} {
		if got := shares(tt.a, tt.b); got != tt.shared {
			t.Errorf("%s: shared %v, want %v", tt.name, got, tt.shared)
		}
	}
}

// TestCombinedOptions: users of a client with different times and variants get the longest times,
// and incremental ADS if any requests it. The difference is logged. A client without users takes
// the options of the next one.
func TestCombinedOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+serverDoc("nowhere")+`], "node": {"id": "`+t.Name()+`"}}`))
		kit.Must(t, err)
		var log strings.Builder
		first := Acquire(cfg, Options{Linger: time.Minute, ResourceTimeout: time.Second, ReconnectSpread: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		is := func(when string, want combined, timeout time.Duration, lines int) {
			t.Helper()
			synctest.Wait()
			if first.combined != want {
				t.Errorf("%s: %+v, want %+v", when, first.combined, want)
			}
			if got := first.resourceTimeoutLocked(cfg.Servers[0]); got != timeout {
				t.Errorf("%s: resources may take %v, want %v", when, got, timeout)
			}
			if n := strings.Count(log.String(), "different options"); n != lines {
				t.Errorf("%s: %d lines, want %d:\n%s", when, n, lines, &log)
			}
		}
		is("first", combined{linger: time.Minute, timeout: time.Second, spread: -1}, time.Second, 0)
		Acquire(cfg, Options{Linger: time.Minute, ResourceTimeout: time.Second, ReconnectSpread: -1})
		is("the same", combined{linger: time.Minute, timeout: time.Second, spread: -1}, time.Second, 0)
		Acquire(cfg, Options{Linger: time.Second, ResourceTimeout: 20 * time.Second, ReconnectSpread: time.Minute, Delta: true})
		is("other", combined{delta: true, linger: time.Minute, timeout: 20 * time.Second, spread: time.Minute}, 20*time.Second, 1)
		for range 3 {
			first.Release()
		}
		if again := Acquire(cfg, Options{Linger: -1}); again != first {
			t.Error("a client that lingers was not shared")
		}
		is("next", combined{linger: -1, defaultTimeout: true}, 15*time.Second, 1)
		first.Release()
		<-first.done
	})
}

// slicedDNS is a resolver.Builder that cannot be compared.
type slicedDNS []resolver.Builder

func (slicedDNS) Scheme() string { return "dns" }
func (slicedDNS) Build(resolver.Target, resolver.ClientConn, resolver.BuildOptions) (resolver.Resolver, error) {
	return nil, errors.New("no names")
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/overlay"
)

// bothVariants runs a test in a bubble for each variant of ADS.
func bothVariants(t *testing.T, f func(t *testing.T, features ...string)) {
	for name, features := range map[string][]string{"sotw": nil, "delta": {deltaFeature}} {
		t.Run(name, func(t *testing.T) { bubble(t, func(t *testing.T) { f(t, features...) }) })
	}
}

// patchesOf returns the source of an overlay with some patches.
func patchesOf(t testing.TB, patches ...string) *overlay.Source {
	t.Helper()
	s, err := overlay.Open(t.Name(), []byte(`{"patches": [`+strings.Join(patches, ",")+`]}`), "", nil)
	kit.Must(t, err)
	return s
}

// overlayFile is an overlay that tests change.
type overlayFile struct {
	t      testing.TB
	name   string
	source *overlay.Source
}

func newOverlayFile(t testing.TB, patches ...string) *overlayFile {
	t.Helper()
	f := &overlayFile{t: t, name: filepath.Join(t.TempDir(), "overlay.json")}
	f.write(patches...)
	var err error
	if f.source, err = overlay.Open("", nil, f.name, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *overlayFile) write(patches ...string) {
	f.t.Helper()
	if err := os.WriteFile(f.name, []byte(`{"patches": [`+strings.Join(patches, ",")+`]}`), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// reload writes the file and waits until it is read.
func (f *overlayFile) reload(patches ...string) {
	f.t.Helper()
	f.write(patches...)
	advance(6 * time.Second)
}

// watchWith watches a target by a channel "xds:///target" with an overlay.
func (h *harness) watchWith(source *overlay.Source, target string) *recorder {
	r := &recorder{}
	r.cancel = h.c.View(source, "xds:///"+target).With(h.c.opts.TargetOptions).Watch(target, target, r)
	return r
}

// policy returns the LB policy of a cluster of the configuration in use.
func (r *recorder) policy(t *testing.T, cluster string) picker.PolicyKind {
	t.Helper()
	return r.cluster(t, cluster).Leaves[0].Policy.Kind
}

// patchOf returns a patch of a cluster.
func patchOf(cluster, merge string) string {
	return fmt.Sprintf(`{"resource": "cluster", "name": %q, "merge": %s}`, cluster, merge)
}

const useMaglev, useRingHash, useInvalid = `{"lb_policy": "MAGLEV"}`, `{"lb_policy": "RING_HASH"}`, `{"lb_policy": "CLUSTER_PROVIDED"}`

// TestOverlaysShareStream: channels with different overlays, or none, share one stream and the
// resources as received, and each has the patches of its own.
func TestOverlaysShareStream(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		h, cp := only(t, Options{}, features...)
		one := patchesOf(t, patchOf("svc", useMaglev), `{"resource": "cluster", "name": "*", "target": "xds:///other", "merge": `+useRingHash+`}`)
		two := patchesOf(t, patchOf("s*", useRingHash))
		first, second, other, plain := h.watchWith(one, "svc"), h.watchWith(two, "svc"), h.watchWith(one, "other"), h.watch("svc")
		cp.serve(append(targetOf("svc", 1), targetOf("other", 2)...)...)
		for i, want := range []picker.PolicyKind{picker.PolicyMaglev, picker.PolicyRingHash, picker.PolicyEDF} {
			if got := []*recorder{first, second, plain}[i].policy(t, "svc"); got != want {
				t.Errorf("channel %d: policy %v, want %v", i, got, want)
			}
		}
		if got := other.policy(t, "other"); got != picker.PolicyRingHash {
			t.Errorf("channel with another target: policy %v", got)
		}
		if n := cp.opened(); n != 1 || h.entries() != 8 {
			t.Errorf("%d streams and %d resources", n, h.entries())
		}
		// Endpoints without patches are the same, and are updated once.
		before := first.got().updates
		cp.serve(append(targetOf("svc", 3), targetOf("other", 2)...)...)
		first.serves(t, "svc", "svc 3")
		second.serves(t, "svc", "svc 3")
		if n := first.got().updates - before; n != 1 {
			t.Errorf("%d updates for a change of endpoints", n)
		}
		advance(time.Second)
		limited := clusterTo("svc", "svc")
		testplane.MaxRequests(7)(limited)
		cp.serve(limited)
		if got, want := first.must(t).Received, plain.must(t).Received; want.IsZero() || !got.Equal(want) || first.cluster(t, "svc").Leaves[0].MaxRequests != 7 {
			t.Errorf("the configuration with patches was received at %v, want %v", got, want)
		}
		if &first.cluster(t, "svc").Leaves[0].Priorities[0] != &plain.cluster(t, "svc").Leaves[0].Priorities[0] {
			t.Error("endpoints without patches are copied")
		}
		for _, w := range []*recorder{first, second, other, plain} {
			w.cancel()
		}
		advance(time.Minute)
		if h.entries() != 0 || h.c.overlaid != 0 {
			t.Errorf("%d resources and %d targets with an overlay are left", h.entries(), h.c.overlaid)
		}
	})
}

// TestPatchedKinds: patches of each kind of resource take effect.
func TestPatchedKinds(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		h, cp := only(t, Options{}, features...)
		w := h.watchWith(patchesOf(t,
			`{"resource": "listener", "name": "svc", "merge": {"api_listener": {"api_listener": {"common_http_protocol_options": {"max_stream_duration": "7s"}}}}}`,
			`{"resource": "route", "name": "svc/*/weighted", "merge": {"route": {"weighted_clusters": {"clusters": [{"name": "svc", "weight": 1}, {"name": "b", "weight": 3}]}}}}`,
			`{"resource": "cluster", "name": "*", "when_unset": true, "merge": {"circuit_breakers": {"thresholds": [{"max_requests": 9}]}}}`,
			`{"resource": "endpoints", "name": "svc", "merge": {"policy": {"drop_overloads": [{"category": "test", "drop_percentage": {"numerator": 25}}]}}}`,
		), "svc")
		routes := routesTo("svc", "svc")
		routes.VirtualHosts[0].Routes[0].Name = "weighted"
		rest := []proto.Message{listenerTo("svc", "svc"), routes, clusterTo("svc", "svc"), clusterTo("b", "b"), endpointsAt("b", 2)}
		cp.serve(append(rest, endpointsAt("svc", 1))...)
		cfg := w.must(t)
		if cfg.MaxStreamDuration != 7*time.Second || len(cfg.Routes) != 1 || len(cfg.Routes[0].Clusters) != 2 {
			t.Errorf("configuration %+v", cfg)
		}
		leaf := &w.cluster(t, "svc").Leaves[0]
		if leaf.MaxRequests != 9 || w.cluster(t, "b").Leaves[0].MaxRequests != 9 {
			t.Errorf("limits %d and %d", leaf.MaxRequests, w.cluster(t, "b").Leaves[0].MaxRequests)
		}
		if len(leaf.Drops) != 1 || leaf.Drops[0].Category != "test" || len(w.cluster(t, "b").Leaves[0].Drops) != 0 {
			t.Errorf("drops %+v", leaf.Drops)
		}
		// Other endpoints have the same drops. Drops of the control plane are replaced.
		changed := endpointsAt("svc", 5, 6)
		cp.serve(append(rest, changed)...)
		w.serves(t, "svc", "svc 5 6")
		changed = proto.Clone(changed).(*endpointv3.ClusterLoadAssignment)
		changed.Policy = &endpointv3.ClusterLoadAssignment_Policy{
			OverprovisioningFactor: wrapperspb.UInt32(100),
			DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
				Category: "control plane", DropPercentage: &typev3.FractionalPercent{Numerator: 1},
			}},
		}
		cp.serve(append(rest, changed)...)
		if leaf := w.cluster(t, "svc").Leaves[0]; len(leaf.Drops) != 1 || leaf.Drops[0].Category != "test" {
			t.Errorf("drops %+v", leaf.Drops)
		}
		if _, nacks, _ := cp.tally(cds.URL()); nacks != 0 {
			t.Errorf("%d NACKs", nacks)
		}
	})
}

// tally returns the number of requests and NACKs of a type on all streams.
func (f *fake) tally(url string) (requests, nacks int, last string) {
	synctest.Wait()
	s := f.Stats(url)
	return s.Requests, s.NACKs, s.LastError
}

// TestPatchSkipped: a patch that makes a resource invalid is skipped for that resource, which is
// acknowledged; other patches apply. One line is logged, whatever happens to the resource later.
func TestPatchSkipped(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		logs := &kit.Logs{}
		h, cp := only(t, Options{Logger: slog.New(logs)}, features...)
		w := h.watchWith(patchesOf(t, patchOf("svc", `{"circuit_breakers": {"thresholds": [{"max_requests": 9}]}}`), patchOf("svc", useInvalid)), "svc")
		cp.serve(targetOf("svc", 1)...)
		if leaf := w.cluster(t, "svc").Leaves[0]; leaf.MaxRequests != 9 || leaf.Policy.Kind != picker.PolicyEDF {
			t.Errorf("limit %d, policy %v", leaf.MaxRequests, leaf.Policy.Kind)
		}
		changed := clusterTo("svc", "svc")
		changed.AltStatName = "changed"
		advance(2 * time.Minute)
		cp.serve(append(targetOf("svc", 1)[:2], changed, endpointsAt("svc", 1))...)
		advance(2 * time.Minute)
		if _, nacks, _ := cp.tally(cds.URL()); nacks != 0 {
			t.Errorf("%d NACKs", nacks)
		}
		const message = "WARN xdslb: skipping a patch of the overlay for a resource"
		if text := logs.String(); strings.Count(text, message) != 1 || !strings.Contains(text, "patches[1]: the patched resource is invalid") {
			t.Errorf("log\n%s", text)
		}
	})
}

// TestOverlayReload: a new overlay takes effect for the resources whose patches change, and only for
// these; an invalid one does not.
func TestOverlayReload(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		h, cp := only(t, Options{}, features...)
		file := newOverlayFile(t, patchOf("svc", useMaglev))
		w := h.watchWith(file.source, "svc")
		resources := append(targetOf("svc", 1)[:1], routesTo("svc", "b", "svc"), clusterTo("svc", "svc"), endpointsAt("svc", 1), clusterTo("b", "b"), endpointsAt("b", 2))
		cp.serve(resources...)
		before, updates := w.must(t), w.got().updates
		expect := func(when string, b, svc picker.PolicyKind, want int) {
			t.Helper()
			if x, y := w.policy(t, "b"), w.policy(t, "svc"); x != b || y != svc {
				t.Errorf("%s: policies %v and %v, want %v and %v", when, x, y, b, svc)
			}
			if n := w.got().updates - updates; n != want {
				t.Errorf("%s: %d updates, want %d", when, n, want)
			}
			updates = w.got().updates
		}
		expect("at first", picker.PolicyEDF, picker.PolicyMaglev, 0)
		file.reload(patchOf("nothing", useRingHash), patchOf("svc", useMaglev), `{"resource": "cluster", "name": "*", "target": "xds:///other", "merge": `+useRingHash+`}`)
		expect("other patches", picker.PolicyEDF, picker.PolicyMaglev, 0)
		if w.must(t) != before {
			t.Error("the configuration was made again")
		}
		file.reload(patchOf("b", useRingHash), patchOf("svc", useMaglev))
		expect("another cluster", picker.PolicyRingHash, picker.PolicyMaglev, 1)
		if was := &before.Clusters[1].Leaves[0]; was.Name != "svc" || &w.cluster(t, "svc").Leaves[0] != was {
			t.Error("a cluster with the same patches was made again")
		}
		file.reload(patchOf("*", useMaglev), patchOf("b", useInvalid))
		expect("all clusters", picker.PolicyMaglev, picker.PolicyMaglev, 1)
		file.reload("x")
		expect("invalid", picker.PolicyMaglev, picker.PolicyMaglev, 0)
		file.reload()
		expect("no patches", picker.PolicyEDF, picker.PolicyEDF, 1)
		if n := cp.opened(); n != 1 {
			t.Errorf("%d streams", n)
		}
	})
}

// TestLateOverlay: the first channel with an overlay may find resources in the cache whose bytes are
// not known. The client receives them again, on another stream, after the end of the first.
func TestLateOverlay(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		book := &kit.Logs{Level: slog.LevelDebug}
		h, cp := only(t, Options{Logger: slog.New(book)}, features...)
		plain := h.watch("svc")
		cp.serve(targetOf("svc", 1)...)
		before := plain.got()
		w := h.watchWith(patchesOf(t, patchOf("svc", useMaglev), `{"resource": "endpoints", "name": "*", "merge": {"policy": {"drop_overloads": [{"category": "test", "drop_percentage": {"numerator": 25}}]}}}`), "svc")
		advance(3 * time.Second) // the stream may be opened after two seconds at the latest
		if got := w.policy(t, "svc"); got != picker.PolicyMaglev || len(w.cluster(t, "svc").Leaves[0].Drops) != 1 {
			t.Errorf("policy %v, drops %v", got, w.cluster(t, "svc").Leaves[0].Drops)
		}
		if n := cp.opened(); n != 2 {
			t.Errorf("%d streams, want 2, one after the other", n)
		}
		book.WantOne(t, "DEBUG", "ended the stream", "overlay")
		if lines := book.With("Canceled"); len(lines) > 0 {
			t.Errorf("the client's own end of a stream is logged as an error: %q", lines)
		}
		if after := plain.got(); after.updates != before.updates || after.config != before.config {
			t.Error("the channel without an overlay has another configuration")
		}
		// A second one needs no other stream.
		second := h.watchWith(patchesOf(t, patchOf("svc", useRingHash)), "svc")
		if got := second.policy(t, "svc"); got != picker.PolicyRingHash || cp.opened() != 2 {
			t.Errorf("policy %v, %d streams", got, cp.opened())
		}
	})
}

// TestLateOverlayInOutage: a channel with an overlay opens while no server can send the bytes of the resources
// again. It fails with the error of the servers (A57), and the client falls back to a server that can be
// reached (A71). Channels with a configuration keep it, also if their overlay changes during the outage.
func TestLateOverlayInOutage(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		h := newHarness(t, Options{}, []string{serverDoc("first", features...), serverDoc("second", features...)}, "")
		first, second := h.servers["first"], h.servers["second"]
		first.serve(targetOf("svc", 1)...)
		second.serve(targetOf("svc", 2)...)
		plain := h.watch("svc")
		plain.serves(t, "svc", "svc 1")
		file := newOverlayFile(t, patchOf("none", useMaglev))
		changed := h.watchWith(file.source, "svc")
		changed.serves(t, "svc", "svc 1")
		first.refuse(errRefused)
		second.refuse(errRefused)
		advance(time.Minute)
		early := h.watchWith(patchesOf(t, patchOf("svc", useMaglev)), "svc")
		advance(time.Minute)
		early.fails(t, "refused", "second")
		file.reload(patchOf("svc", useRingHash))
		advance(time.Minute)
		for _, w := range []*recorder{plain, changed} {
			if w.serves(t, "svc", "svc 1"); w.got().errs > 0 || w.cluster(t, "svc").Err != nil {
				t.Errorf("a channel with a configuration has an error: %v", w.got().err)
			}
		}
		second.refuse(nil)
		advance(5 * time.Minute)
		early.serves(t, "svc", "svc 2")
		if one, other := early.policy(t, "svc"), changed.policy(t, "svc"); one != picker.PolicyMaglev || other != picker.PolicyRingHash {
			t.Errorf("policies %v and %v", one, other)
		}
		first.refuse(nil)
		advance(5 * time.Minute)
		early.serves(t, "svc", "svc 1")
		plain.serves(t, "svc", "svc 1")
	})
}

// TestLateOverlayOfRejectedVersion: a channel with an overlay opens while the latest version of a resource is
// invalid, so that the server does not send the version in use again. The channel has the error, until
// there is a valid version.
func TestLateOverlayOfRejectedVersion(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		h, cp, plain := serving(t, Options{}, features...)
		cp.serve(badCluster("svc"))
		w := h.watchWith(patchesOf(t, patchOf("svc", useMaglev)), "svc")
		advance(time.Minute)
		if err := w.cluster(t, "svc").Err; err == nil || !strings.Contains(err.Error(), "lrs_server") {
			t.Errorf("cluster error %v, want the reason of the rejection (A74: the error of a cluster is its own)", err)
		}
		plain.serves(t, "svc", "svc 1")
		cp.serve(clusterTo("svc", "svc"))
		advance(time.Minute)
		if got := w.policy(t, "svc"); got != picker.PolicyMaglev {
			t.Errorf("policy %v", got)
		}
	})
}

// TestPatchedFailures: a resource that is rejected, deleted or missing has the same effect with
// patches as without.
func TestPatchedFailures(t *testing.T) {
	for _, drop := range []bool{false, true} {
		bothVariants(t, func(t *testing.T, features ...string) { patchedFailures(t, drop, features...) })
	}
}

func patchedFailures(t *testing.T, drop bool, features ...string) {
	h, cp := only(t, Options{TargetOptions: TargetOptions{DropDeleted: drop}}, features...)
	source := patchesOf(t, patchOf("*", useMaglev), `{"resource": "endpoints", "name": "*", "merge": {"policy": {"overprovisioning_factor": 7}}}`,
		`{"resource": "route", "name": "*", "merge": {"metadata": {"filter_metadata": {"k": {"v": 1}}}}}`)
	w, plain := h.watchWith(source, "svc"), h.watch("svc")
	same := func(when string) {
		t.Helper()
		a, b := w.got(), plain.got()
		if fmt.Sprint(a.err) != fmt.Sprint(b.err) || (a.config == nil) != (b.config == nil) {
			t.Fatalf("%s: %v, want %v", when, a.err, b.err)
		}
		if a.config == nil {
			return
		}
		for i, c := range b.config.Clusters {
			got := a.config.Clusters[i]
			if fmt.Sprint(got.Err) != fmt.Sprint(c.Err) || len(got.Leaves) != len(c.Leaves) || ports(got) != ports(c) {
				t.Errorf("%s: cluster %+v, want %+v", when, got, c)
			} else if len(c.Leaves) > 0 && (fmt.Sprint(got.Leaves[0].ResolutionNote) != fmt.Sprint(c.Leaves[0].ResolutionNote) || got.Leaves[0].Policy.Kind != picker.PolicyMaglev) {
				t.Errorf("%s: leaf %+v, want %+v", when, got.Leaves[0], c.Leaves[0])
			}
		}
	}
	same("before the first response")
	advance(time.Minute)
	same("missing")
	cp.serve(targetOf("svc", 1)...)
	same("served")
	cp.serve(append(targetOf("svc", 1)[:2], badCluster("svc"), badEndpoints("svc"))...)
	advance(2 * time.Second)
	same("invalid cluster and endpoints")
	cp.serve(append(targetOf("svc", 2)[:2], clusterTo("svc", "svc2"), endpointsAt("svc2", 4))...)
	advance(2 * time.Second)
	same("other endpoints")
	only := func(resources ...proto.Message) {
		t.Helper()
		kit.Must(t, cp.Set(collect(resources)))
		advance(time.Minute)
	}
	only(targetOf("svc", 2)[:2]...)
	same("cluster deleted")
	if got := w.cluster(t, "svc").Err != nil; got != drop {
		t.Errorf("a cluster that was deleted fails: %v, want %v", got, drop)
	}
	cp.serve(targetOf("svc", 2)...)
	same("served after a deletion")
	cp.serve(listenerTo("svc", "missing"))
	cp.refuse(errRefused)
	cp.hangUp(errRefused)
	advance(time.Minute)
	same("server unreachable while routes are missing")
	cp.refuse(nil)
	advance(2 * time.Minute)
	same("server reachable again")
	advance(time.Minute)
	only()
	same("all deleted")
	if w.got().err == nil {
		t.Error("a target without routes is in use")
	}
	cp.serve(targetOf("svc", 3)...)
	advance(time.Minute)
	same("served again")
	w.serves(t, "svc", "svc 3")
}

// TestPatchKeepsTLS: a patch cannot remove or change the TLS settings of a cluster unless it permits
// that.
func TestPatchKeepsTLS(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{}, []string{serverDoc("cp")}, `, "certificate_providers": {"p": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "roots.pem"}}}`)
		cp := h.servers["cp"]
		const remove = `{"resource": "cluster", "name": "svc", %s"merge": {"lb_policy": "MAGLEV", "transport_socket": {"name": "envoy.transport_sockets.raw_buffer"}}}`
		insecure := `{"resource": "cluster", "name": "svc", "allow_security_changes": true, "merge": {"transport_socket": null}}`
		kept, open := h.watchWith(patchesOf(t, fmt.Sprintf(remove, "")), "svc"), h.watchWith(patchesOf(t, insecure), "svc")
		cluster := clusterTo("svc", "svc")
		cluster.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: wrap(&tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
				ValidationContext: &tlsv3.CertificateValidationContext{CaCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: "p"}},
			}}}),
		}}
		cp.serve(append(targetOf("svc", 1)[:2], cluster, endpointsAt("svc", 1))...)
		if leaf := kept.cluster(t, "svc").Leaves[0]; leaf.TLS == nil || leaf.Policy.Kind != picker.PolicyEDF {
			t.Errorf("cluster %+v", leaf)
		}
		if leaf := open.cluster(t, "svc").Leaves[0]; leaf.TLS != nil {
			t.Errorf("cluster %+v", leaf)
		}
		forms := statusOf(h.c, cds, "svc").Patched
		if len(forms) != 2 {
			t.Fatalf("%d forms of the cluster", len(forms))
		}
		for _, form := range forms {
			if o := form.Outcomes[0]; o.Changed == (o.Err != nil) || o.Err != nil && !strings.Contains(o.Err.Error(), "allow_security_changes") {
				t.Errorf("outcome %+v", o)
			}
		}
	})
}

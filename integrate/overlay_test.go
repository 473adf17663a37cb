// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/xdstls/tlstest"
	"github.com/xdslb/xdslb/xds/overlay"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// overlayOf returns an overlay with some patches.
func overlayOf(patches ...string) []byte {
	return []byte(`{"patches": [` + strings.Join(patches, ",") + `]}`)
}

// overlayFile sets XDSLB_OVERLAY to a new file, and returns a function that replaces its content and
// waits until it is read.
func overlayFile(t *testing.T, patches ...string) (file string, replace func(patches ...string)) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "overlay.json")
	write := func(patches ...string) {
		t.Helper()
		temporary := file + ".new"
		kit.Must(t, os.WriteFile(temporary, overlayOf(patches...), 0o600))
		kit.Must(t, os.Rename(temporary, file))
	}
	write(patches...)
	t.Setenv("XDSLB_OVERLAY", file)
	return file, func(patches ...string) {
		t.Helper()
		write(patches...)
		time.Sleep(6 * time.Second)
		synctest.Wait()
	}
}

const (
	patchOutliers = `{"resource": "cluster", "name": "*", "target": "xds:///e2e*", "when_unset": true, "merge": {"outlier_detection": {"success_rate_stdev_factor": 1900}}}`
	patchLatency  = `{"resource": "cluster", "name": "e2e.*", "merge": {"load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "p", "typed_config":
		{"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "type.googleapis.com/xdslb_least_latency", "value": {}}}}]}}}`
	patchLeast   = `{"resource": "cluster", "name": "e2e.*", "merge": {"lb_policy": "LEAST_REQUEST"}}`
	patchTimeout = `{"resource": "route", "name": "*", "merge": {"route": {"timeout": "17s"}}}`
	patchInvalid = `{"resource": "cluster", "name": "*", "merge": {"lb_policy": "CLUSTER_PROVIDED"}}`
	patchOther   = `{"resource": "cluster", "name": "other", "merge": {"lb_policy": "RING_HASH"}}`
)

// TestOverlay: patches of Config.Overlay and of the file take effect, also when the file changes
// under load: no RPC fails, and there is one stream. Status and Explain show them.
func TestOverlay(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) { checkOverlay(t, b, delta) })
		})
	}
}

func checkOverlay(t *testing.T, b *bubble, delta bool) {
	file, replace := overlayFile(t, patchLatency, patchOther)
	control := xdstest.New(t, xdstest.Options{Listen: b.net.Listen, SingleStream: true})
	backends := b.backends(4)
	r := service(backends[:3]...)
	r.Add(xdstest.Service("other", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends[3])}))
	set(t, control, r)
	cfg := b.config(control)
	cfg.Delta, cfg.Overlay = delta, overlayOf(patchOutliers)
	patched := b.dial(cfg)
	cfg.Overlay = nil
	other := b.dialTo(cfg, "other")
	succeed(t, patched)
	succeed(t, other)
	policies := func() (mine, others string) {
		t.Helper()
		synctest.Wait()
		return statusOf(t, patched).Clusters[0].Leaves[0].Policy, statusOf(t, other).Clusters[0].Leaves[0].Policy
	}
	if mine, others := policies(); mine != "least_latency" || others != "ring_hash" {
		t.Errorf("policies %q and %q", mine, others)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				if _, err := call(t, patched); err != nil {
					t.Errorf("RPC: %v", err)
				}
				if _, err := call(t, other); err != nil {
					t.Errorf("RPC: %v", err)
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	for i := range 6 {
		replace([][]string{{patchLeast, patchTimeout}, {patchInvalid}, {"x"}, {patchOther}, {patchLatency, patchOther}, {patchLeast, patchInvalid}}[i]...)
		mine, others := policies()
		want := [][2]string{{"least_request", "edf"}, {"edf", "edf"}, {"edf", "edf"}, {"edf", "ring_hash"}, {"least_latency", "ring_hash"}, {"least_request", "edf"}}[i]
		if mine != want[0] || others != want[1] {
			t.Errorf("change %d: policies %q and %q, want %q", i, mine, others, want)
		}
		if i == 2 && !strings.Contains(statusOf(t, patched).OverlayError, "invalid JSON") {
			t.Errorf("error of the overlay: %q", statusOf(t, patched).OverlayError)
		}
	}
	cancel()
	load.Wait()
	if _, total := control.Streams(); total != 1 {
		t.Errorf("%d streams", total)
	}
	s := statusOf(t, patched)
	var effects []string
	for i := range s.Overlay {
		effects = append(effects, s.Overlay[i].Patch+" "+s.Overlay[i].Effect())
	}
	want := []string{
		"Config.Overlay: patches[0] changes Cluster " + target,
		"file " + file + ": patches[0] changes Cluster " + target,
		"file " + file + ": patches[1] skipped for Cluster " + target + ": the patched resource is invalid: ",
	}
	for i := range want {
		if len(effects) != len(want) || !strings.HasPrefix(effects[i], want[i]) {
			t.Fatalf("effects of patches\n%s\nwant\n%s", strings.Join(effects, "\n"), strings.Join(want, "\n"))
		}
	}
	x, err := integrate.Explain(context.Background(), patched, "/a/b")
	if err != nil || len(x.Patched) != 2 || !strings.Contains(x.String(), "Changed by the overlay: Cluster "+target+", by Config.Overlay: patches[0]") {
		t.Errorf("explanation %v, %v", x, err)
	}
}

// TestOverlayErrors: an invalid overlay is an error of all constructors, which names its source, the
// patch and the path, except for channels that the environment hands over.
func TestOverlayErrors(t *testing.T) {
	boot := []byte(`{"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}]}`)
	bad := overlayOf(`{"resource": "cluster", "name": "c", "merge": {"outlier_detection": {"interval": 5}}}`)
	file := filepath.Join(t.TempDir(), "overlay.json")
	kit.Must(t, os.WriteFile(file, bad, 0o600))
	for _, tt := range []struct {
		name, file, want string
		overlay          []byte
	}{
		{"Config", "", "xdslb: overlay: Config.Overlay: patches[0].merge.outlier_detection.interval: ", bad},
		{"file", file, "xdslb: overlay: file " + file + ": patches[0].merge.outlier_detection.interval: ", nil},
		{"missing file", file + ".missing", "xdslb: overlay: file " + file + ".missing: cannot be read: ", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("XDSLB_OVERLAY", tt.file)
			cfg := integrate.Config{Bootstrap: boot, Overlay: tt.overlay}
			_, err := integrate.DialOptions(cfg)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("DialOptions returned %v, want %s", err, tt.want)
			}
			if _, again := integrate.NewBuilder(cfg); fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("NewBuilder returned %v", again)
			}
			t.Setenv("XDSLB_DISABLE", "all")
			if _, err := integrate.DialOptions(cfg); err != nil {
				t.Errorf("DialOptions returned %v for a channel that is handed over", err)
			}
		})
	}
	t.Setenv("XDSLB_OVERLAY", file)
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", string(boot))
	if _, err := integrate.NewClient("xds:///x", grpc.WithTransportCredentials(insecure.NewCredentials())); err == nil {
		t.Error("NewClient succeeded")
	}
}

// TestOverlayExamples: the examples of overlay.md change the clusters that they name.
func TestOverlayExamples(t *testing.T) {
	text, err := os.ReadFile("docs/overlay.md")
	kit.Must(t, err)
	examples := 0
	for block := range strings.SplitSeq(string(text), "```json\n") {
		document, _, ok := strings.Cut(block, "```")
		if !ok || !strings.HasPrefix(document, "{") {
			continue
		}
		examples++
		o, err := overlay.Parse("overlay.md", []byte(document))
		kit.Must(t, err)
		changed := map[overlay.Ref]bool{}
		for _, name := range []string{"cart", "catalog"} {
			name = "outbound|7070||" + name + ".shop.svc.cluster.local"
			value, err := proto.Marshal(xdstest.Cluster(name, name))
			kit.Must(t, err)
			r := o.Select("xds:///x").Apply(resource.ClusterType, name, value, func(b []byte) (any, error) {
				return resource.Decode(resource.ClusterType, b, resource.Options{})
			})
			for _, out := range r.Outcomes {
				if out.Err != nil {
					t.Errorf("%v: %v", out.Patch, out.Err)
				}
				changed[out.Patch] = changed[out.Patch] || out.Changed
			}
		}
		for _, p := range o.Patches() {
			if !changed[p.Ref] {
				t.Errorf("%v changes nothing", p)
			}
		}
	}
	if examples != 2 {
		t.Errorf("%d examples", examples)
	}
}

// TestOverlayOptional checks that with Config.IgnoreOverlayErrors, or a question mark at the end of
// XDSLB_OVERLAY, a program starts although the overlay is invalid: RPCs succeed without its patches, the
// status and the log have the error, and the file is used once it is valid. Otherwise the channel is not made.
func TestOverlayOptional(t *testing.T) {
	for _, tt := range []struct {
		name     string
		ignore   bool
		suffix   string
		document string
		starts   bool
	}{
		{"default", false, "", "", false},
		{"Config.IgnoreOverlayErrors", true, "", "", true},
		{"question mark", false, "?", "", true},
		{"both", true, "?", "", true},
		{"invalid document", true, "", "{", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				file, replace := overlayFile(t, `{"resource": "cluster"}`)
				t.Setenv("XDSLB_OVERLAY", file+tt.suffix)
				control, log := b.control(), &kit.Logs{}
				set(t, control, service(b.backends(1)...))
				cfg := b.config(control)
				cfg.IgnoreOverlayErrors, cfg.Overlay, cfg.Logger = tt.ignore, []byte(tt.document), slog.New(log)
				if !tt.starts {
					if _, err := integrate.DialOptions(cfg); err == nil || !strings.Contains(err.Error(), file) {
						t.Errorf("DialOptions: %v, want an error that names the file", err)
					}
					return
				}
				cc := b.dial(cfg)
				if _, err := call(t, cc); err != nil {
					t.Error(err)
				}
				if s := statusOf(t, cc); len(s.Overlay) > 0 || s.OverlayError == "" || tt.document == "" && !strings.Contains(s.OverlayError, file) {
					t.Errorf("the status has patches %+v and error %q", s.Overlay, s.OverlayError)
				}
				lines := 1
				if tt.document != "" {
					lines = 2
				}
				if found := log.With("ERROR xdslb: overlay is invalid: channels start without it", "error="); len(found) != lines {
					t.Errorf("%d lines, want %d: %s", len(found), lines, log)
				}
				replace(patchTimeout)
				s := statusOf(t, cc)
				if len(s.Overlay) != 1 || len(s.Overlay[0].Changed) != 1 || (s.OverlayError == "") != (tt.document == "") {
					t.Errorf("after the repair, the status has patches %+v and error %q", s.Overlay, s.OverlayError)
				}
			})
		})
	}
}

// istioDocument returns the JSON document in docs/istio.md that has a text.
func istioDocument(t testing.TB, text string) string {
	t.Helper()
	page, err := os.ReadFile("docs/istio.md")
	kit.Must(t, err)
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], text) {
			return m[1]
		}
	}
	t.Fatalf("docs/istio.md has no JSON with %q", text)
	return ""
}

// TestIstioOverlay applies the overlay of docs/istio.md to clusters as Istio sends them.
func TestIstioOverlay(t *testing.T) {
	o, err := overlay.Parse("docs/istio.md", []byte(istioDocument(t, `"patches"`)))
	kit.Must(t, err)
	used := map[int]bool{}
	for name, typ := range map[string]clusterv3.Cluster_DiscoveryType{
		"outbound|7070||cart.shop.svc.cluster.local": clusterv3.Cluster_EDS,
		"outbound|443||api.partner.example.com":      clusterv3.Cluster_LOGICAL_DNS,
	} {
		sent, err := proto.Marshal(xdstest.Cluster(name, name))
		kit.Must(t, err)
		r := o.Select("xds:///cart.shop.svc.cluster.local:7070").Apply(resource.ClusterType, name, sent, func(b []byte) (any, error) {
			return resource.Decode(resource.ClusterType, b, resource.Options{})
		})
		for _, of := range r.Outcomes {
			if of.Err != nil || !of.Changed {
				t.Errorf("%s: %v has no effect: %v", name, of.Patch, of.Err)
			}
			used[of.Patch.Index] = true
		}
		var patched clusterv3.Cluster
		if err := proto.Unmarshal(r.Bytes, &patched); err != nil || patched.GetType() != typ {
			t.Errorf("%s has type %v, want %v: %v", name, patched.GetType(), typ, err)
		}
		if typ == clusterv3.Cluster_EDS && (patched.GetLbPolicy() != clusterv3.Cluster_LEAST_REQUEST || patched.GetOutlierDetection() == nil || patched.GetCircuitBreakers() == nil) {
			t.Errorf("%s lacks settings of the patch: %v", name, &patched)
		}
	}
	if len(used) != len(o.Patches()) {
		t.Errorf("of %d patches %v apply", len(o.Patches()), used)
	}
}

// jwt returns a signed token that expires in an hour.
func jwt(key ed25519.PrivateKey) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"EdDSA"}`)) + "." + encode(fmt.Appendf(nil, `{"aud":["istio-ca"],"exp":%d}`, time.Now().Add(time.Hour).Unix()))
	return text + "." + encode(ed25519.Sign(key, []byte(text)))
}

// verifyJWT is an interceptor that refuses streams without a token that the key has signed.
func verifyJWT(key ed25519.PublicKey) grpc.ServerOption {
	return grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		token := strings.TrimPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
		dot := strings.LastIndexByte(token, '.')
		signature, err := base64.RawURLEncoding.DecodeString(token[dot+1:])
		if dot < 0 || err != nil || !ed25519.Verify(key, []byte(token[:dot]), signature) {
			return status.Error(codes.Unauthenticated, "the token is invalid")
		}
		return handler(srv, stream)
	})
}

// TestWithoutAgent uses the bootstrap of docs/istio.md, whose files and address are replaced, with
// a control plane that has TLS and verifies the token.
func TestWithoutAgent(t *testing.T) {
	const istiod = "istiod.istio-system.svc"
	ca, dir := tlstest.NewCA(t, "ca"), t.TempDir()
	public, key, err := ed25519.GenerateKey(nil)
	kit.Must(t, err)
	_, other, err := ed25519.GenerateKey(nil)
	kit.Must(t, err)
	leaf := ca.Issue(tlstest.Names{DNS: []string{istiod}}).TLS
	control := xdstest.New(t, xdstest.Options{Server: []grpc.ServerOption{grpc.Creds(credentials.NewServerTLSFromCert(&leaf)), verifyJWT(public)}})
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	set(t, control, service(backends...))
	tlstest.Write(t, filepath.Join(dir, "root-cert.pem"), ca.PEM)
	boot := strings.NewReplacer(istiod+":15012", "passthrough:///"+istiod+":15012",
		"/var/run/secrets/istio", dir, "/var/run/secrets/tokens", dir).Replace(istioDocument(t, "call_creds"))
	cfg := integrate.Config{Bootstrap: []byte(boot), Linger: -1, ControlPlaneDialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			if addr != istiod+":15012" {
				t.Errorf("the control plane is dialed at %q", addr)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", control.Addr())
		})}}
	t.Run("token of another issuer", func(t *testing.T) {
		tlstest.Write(t, filepath.Join(dir, "istio-token"), []byte(jwt(other)))
		if _, err := call(t, dialConfig(t, cfg)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the token is invalid") {
			t.Errorf("RPC returned %v, want UNAVAILABLE because of the token", err)
		}
	})
	t.Run("valid token", func(t *testing.T) {
		tlstest.Write(t, filepath.Join(dir, "istio-token"), []byte(jwt(key)))
		if _, err := call(t, dialConfig(t, cfg)); err != nil {
			t.Errorf("RPC returned %v", err)
		}
	})
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestCheckCertificates: certificates that expire, that have expired, and that the roots
// beside them did not issue.
func TestCheckCertificates(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	path := func(name string) string { return filepath.Join(dir, name) }
	root, rootKey := certificate(t, "root", now.AddDate(5, 0, 0), nil, nil, path("root"))
	certificate(t, "other root", now.AddDate(5, 0, 0), nil, nil, path("other"))
	certificate(t, "good", now.AddDate(0, 0, 30), root, rootKey, path("good"))
	certificate(t, "soon", now.Add(5*time.Hour), root, rootKey, path("soon"))
	for _, row := range []struct {
		name, roots, own string
		at               time.Time
		code             int
		want             []string
	}{
		{"good", "root", "good", now, exitOK, []string{`client certificate "CN=good"`, "valid until 2030-01-31 12:00Z", "1 root in"}},
		{"soon", "root", "soon", now, exitFinding, []string{"warn certificate provider p: client certificate", "expires in 5h0m0s"}},
		{"expired", "root", "soon", now.AddDate(0, 0, 1), exitFinding, []string{"FAIL", "expired at 2030-01-01 17:00Z"}},
		{"early", "root", "good", now.AddDate(-20, 0, 0), exitFinding, []string{"FAIL", "not valid before"}},
		{"other roots", "other", "good", now, exitFinding, []string{"warn", "not issued by the roots"}},
		{"missing", "nothing", "good", now, exitFinding, []string{"FAIL", "nothing.pem"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			boot := fmt.Sprintf(`{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[{"type":"insecure"}]}],"node":{"id":"n"},
				"certificate_providers":{"p":{"plugin_name":"file_watcher","config":{"ca_certificate_file":%q,"certificate_file":%q,"private_key_file":%q}}}}`,
				path(row.roots+".pem"), path(row.own+".pem"), path(row.own+".key"))
			var out bytes.Buffer
			e := &env{ctx: t.Context(), stdout: &out, stderr: &out, now: func() time.Time { return row.at }}
			code := e.run([]string{"check", "-offline", "-b", saved(t, boot)})
			text := strings.Join(strings.Fields(out.String()), " ")
			for _, want := range row.want {
				if !strings.Contains(text, want) {
					t.Errorf("check lacks %q:\n%s", want, out.String())
				}
			}
			if code != row.code {
				t.Errorf("exit code %d, want %d:\n%s", code, row.code, out.String())
			}
		})
	}
}

// TestCheckFiles: check reads the files of credentials without connecting, and accepts what channels
// accept, such as google_default.
func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	certificate(t, "root", time.Now().AddDate(1, 0, 0), nil, nil, filepath.Join(dir, "root"))
	check := func(creds string) []string {
		boot := fmt.Sprintf(`{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[%s}],"node":{"id":"n"}}`, creds)
		return []string{"check", "-offline", "-b", saved(t, boot)}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	wantCall(t, exitOK, check(`{"type":"google_default"}]`), "ok bootstrap")
	wantCall(t, exitOK, check(fmt.Sprintf(`{"type":"tls","config":{"ca_certificate_file":%q}}]`, file("root.pem"))), `ok xDS server 127.0.0.1:1: root "CN=root": valid until`)
	wantCall(t, exitFinding, check(fmt.Sprintf(`{"type":"tls","config":{"ca_certificate_file":%q}}]`, file("nothing.pem"))), "FAIL xDS server 127.0.0.1:1: roots: xdslb: reading ca_certificate_file: open", "nothing.pem")
	certificate(t, "other", time.Now().AddDate(1, 0, 0), nil, nil, filepath.Join(dir, "other"))
	pair := `{"type":"tls","config":{"certificate_file":%q,"private_key_file":%q}}]`
	wantCall(t, exitOK, check(fmt.Sprintf(pair, file("root.pem"), file("root.key"))), `client certificate "CN=root"`)
	// A control plane may accept the clients of another authority than its own.
	wantCall(t, exitOK, check(fmt.Sprintf(`{"type":"tls","config":{"ca_certificate_file":%q,"certificate_file":%q,"private_key_file":%q}}]`,
		file("root.pem"), file("other.pem"), file("other.key"))), `client certificate "CN=other"`)
	wantCall(t, exitFinding, check(fmt.Sprintf(pair, file("root.pem"), file("other.key"))), "FAIL xDS server 127.0.0.1:1: client certificate: xdslb: reading certificate_file", "private key does not match")
	wantCall(t, exitFinding, check(fmt.Sprintf(`{"type":"tls"}],"call_creds":[{"type":"jwt_token_file","config":{"jwt_token_file":%q}}]`, file("token"))), "FAIL xDS server 127.0.0.1:1: jwt_token_file: open", "token")
}

// TestCheckPreface: if a server of TLS gets plaintext, the error suggests that it may require TLS.
func TestCheckPreface(t *testing.T) {
	dir := t.TempDir()
	certificate(t, "root", time.Now().AddDate(1, 0, 0), nil, nil, filepath.Join(dir, "root"))
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "root.pem"), filepath.Join(dir, "root.key"))
	kit.Must(t, err)
	control := xdstest.New(t, xdstest.Options{Server: []grpc.ServerOption{grpc.Creds(credentials.NewServerTLSFromCert(&pair))}})
	wantCall(t, exitFinding, []string{"check", "-b", saved(t, string(control.Bootstrap("n")))}, "FAIL xDS server "+control.Addr(), "may require TLS, see channel_creds")
}

// TestCheckUnread: a Listener that cannot be parsed is a finding of check with the target.
func TestCheckUnread(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	control := testplane.NewScripted(t, testplane.ScriptedOptions{Listener: lis, Tamper: func(_ context.Context, resp *discoveryv3.DiscoveryResponse) []*discoveryv3.DiscoveryResponse {
		bad := proto.CloneOf(resp)
		bad.Resources = []*anypb.Any{{TypeUrl: resp.TypeUrl, Value: []byte("rubbish")}}
		return []*discoveryv3.DiscoveryResponse{bad}
	}})
	kit.Must(t, control.Set(xdstest.Service("orders")))
	wantCall(t, exitFinding, []string{"check", "orders", "-b", saved(t, insecureBootstrap(lis.Addr())), "-timeout", "2s"}, "FAIL target xds:///orders", "Listener resource: malformed")
}

// googleBootstrap returns a bootstrap as Google's generator for Cloud Service Mesh writes it, with its
// flags: github.com/GoogleCloudPlatform/traffic-director-grpc-bootstrap, generate in main.go.
func googleBootstrap(secrets string, flags ...string) string {
	features, network, more := `"xds_v3"`, "default", ""
	metadata := `"INSTANCE_IP": "10.9.8.7", "TRAFFICDIRECTOR_GRPC_BOOTSTRAP_GENERATOR_SHA": "7202b7c6"`
	regional := ""
	for _, f := range flags {
		switch f {
		case "is-trusted-xds-server":
			features += `, "trusted_xds_server"`
		case "ignore-resource-deletion":
			features += `, "ignore_resource_deletion"`
		case "config-mesh":
			network = "mesh:testmesh"
		case "deployment":
			metadata += `, "TRAFFIC_DIRECTOR_CLIENT_ENVIRONMENT": {"GKE-CLUSTER": "c", "GKE-LOCATION": "l", "GCP-ZONE": "z", "INSTANCE-IP": "10.9.8.7", "GKE-POD": "p"}`
		case "ipv6":
			metadata += `, "TRAFFICDIRECTOR_DIRECTPATH_C2P_IPV6_CAPABLE": true`
		case "node-metadata":
			metadata += `, "k1": "v1", "k2": "v2"`
		case "include-allowed-grpc-services":
			more = `"allowed_grpc_services": {"dns:///trafficdirector.googleapis.com:443": {"channel_creds": [{"type": "google_default"}]}},`
		case "xds-server-region":
			regional = `, "traffic-director.us-central1.xds.googleapis.com": {
				"xds_servers": [{"server_uri": "trafficdirector.us-central1.rep.googleapis.com:443", "channel_creds": [{"type": "google_default"}], "server_features": ["xds_v3"]}],
				"client_listener_resource_name_template": "xdstp://traffic-director.us-central1.xds.googleapis.com/envoy.config.listener.v3.Listener/123/default/%s"}`
		}
	}
	const listeners = "/envoy.config.listener.v3.Listener/"
	return `{
		"xds_servers": [{"server_uri": "trafficdirector.googleapis.com:443", "channel_creds": [{"type": "google_default"}], "server_features": [` + features + `]}],
		"authorities": {
			"traffic-director-c2p.xds.googleapis.com": {
				"xds_servers": [{"server_uri": "dns:///directpath-pa.googleapis.com", "channel_creds": [{"type": "google_default"}], "server_features": ["xds_v3", "ignore_resource_deletion"]}],
				"client_listener_resource_name_template": "xdstp://traffic-director-c2p.xds.googleapis.com` + listeners + `%s"
			},
			"traffic-director-global.xds.googleapis.com": {
				"client_listener_resource_name_template": "xdstp://traffic-director-global.xds.googleapis.com` + listeners + `123/` + network + `/%s"
			}` + regional + `
		},
		"node": {
			"id": "projects/123/networks/` + network + `/nodes/52fdfc07-2182-454f-963f-5f0f9a621d72", "cluster": "cluster",
			"metadata": {` + metadata + `}, "locality": {"zone": "us-central1-a"}
		},
		"certificate_providers": {"google_cloud_private_spiffe": {"plugin_name": "file_watcher", "config": {
			"certificate_file": "` + secrets + `/certificates.pem", "private_key_file": "` + secrets + `/private_key.pem",
			"ca_certificate_file": "` + secrets + `/ca_certificates.pem", "refresh_interval": "600s"
		}}}, ` + more + `
		"server_listener_resource_name_template": "grpc/server?xds.resource.listening_address=%s",
		"client_default_listener_resource_name_template": "xdstp://traffic-director-global.xds.googleapis.com` + listeners + `123/` + network + `/%s"
	}`
}

// published returns the bootstraps of a document: its JSON blocks with xds_servers.
func published(t *testing.T, name string) (boots []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	kit.Must(t, err)
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)\n *```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], `"xds_servers"`) {
			boots = append(boots, m[1])
		}
	}
	return boots
}

// TestCheckBootstraps: check accepts the bootstraps that Google's generator and Istio's agent write, and
// those of the documentation, like a channel. If their files are missing, it fails and names them.
func TestCheckBootstraps(t *testing.T) {
	istio, err := os.ReadFile("../../../xds/bootstrap/testdata/good/istio_agent.json")
	kit.Must(t, err)
	boots := map[string]string{"Istio": string(istio), "Google": googleBootstrap("/secrets")}
	for _, flag := range []string{
		"is-trusted-xds-server", "ignore-resource-deletion", "config-mesh", "deployment", "ipv6", "node-metadata", "include-allowed-grpc-services", "xds-server-region",
	} {
		boots["Google -"+flag] = googleBootstrap("/secrets", flag)
	}
	documents, err := filepath.Glob("../../docs/*.md")
	kit.Must(t, err)
	n := len(boots)
	for _, name := range documents {
		for i, text := range published(t, name) {
			boots[fmt.Sprintf("%s %d", filepath.Base(name), i)] = text
		}
	}
	if len(boots) < n+3 {
		t.Errorf("the documentation has %d bootstraps", len(boots)-n)
	}
	// The files, by their names in the bootstraps.
	files := t.TempDir()
	root, rootKey := certificate(t, "root", time.Now().AddDate(1, 0, 0), nil, nil, filepath.Join(files, "root"))
	certificate(t, "own", time.Now().AddDate(1, 0, 0), root, rootKey, filepath.Join(files, "own"))
	real := map[string]string{"ca_certificate_file": "root.pem", "certificate_file": "own.pem", "private_key_file": "own.key", "jwt_token_file": "own.pem"}
	path := regexp.MustCompile(`"(\w+_file)":\s*"[^"]*"`)
	for name, text := range boots {
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "bootstrap.json")
			write := func(in string) []byte {
				boot := path.ReplaceAllFunc([]byte(text), func(m []byte) []byte {
					key := string(path.FindSubmatch(m)[1])
					return fmt.Appendf(nil, "%q: %q", key, filepath.Join(in, real[key]))
				})
				kit.Must(t, os.WriteFile(at, boot, 0o600))
				return boot
			}
			boot := write(files)
			if strings.Contains(text, `"kubernetes:"`) {
				// The command does not have the module. That module's tests use the bootstrap.
				wantCall(t, exitFinding, []string{"check", "-offline", "-b", at}, "FAIL bootstrap", `"kubernetes" is the scheme of a source`, "import the package")
				return
			}
			if _, err := integrate.NewBuilder(integrate.Config{Bootstrap: boot}); err != nil {
				t.Errorf("a channel rejects the bootstrap: %v", err)
			}
			wantCall(t, exitOK, []string{"check", "-offline", "-b", at}, "ok bootstrap")
			if path.MatchString(text) {
				write("/nothing")
				wantCall(t, exitFinding, []string{"check", "-offline", "-b", at}, "ok bootstrap", "FAIL", "/nothing")
			}
		})
	}
}

// TestNew: check accepts the files of new, with every combination of its flags. Existing files are kept. check reports
// a resource file that is invalid.
func TestNew(t *testing.T) {
	flags := [][]string{{}, {"-outliers"}, {"-retries"}, {"-outliers", "-retries"}}
	for i, policy := range []string{"least_latency", "least_request", "round_robin"} {
		for n, flags := range flags {
			dir := t.TempDir()
			args := append([]string{"new", "-dns", "orders.shop.svc:8080", "-dir", dir, "-policy", policy}, flags...)
			wantCall(t, exitOK, args, filepath.Join(dir, "bootstrap.json"), "xds:///orders.shop.svc:8080")
			file, resources := filepath.Join(dir, "bootstrap.json"), filepath.Join(dir, "resources.json")
			wantCall(t, exitOK, []string{"check", "-b", file, "xds:///orders.shop.svc:8080"}, "clusters: 1", "a resource file", "STRICT_DNS is unsupported")
			out := wantCall(t, exitOK, []string{"check", "-f", resources, "orders.shop.svc:8080"}, "clusters: 1", "slow start")
			for flag, feature := range map[string]string{"-outliers": "consecutive failures", "-retries": "retry_budget"} {
				if got, want := strings.Contains(strings.Join(strings.Fields(out.out), " "), feature), slices.Contains(flags, flag); got != want {
					t.Errorf("flags %q: the resources have %q: %v, want %v", flags, feature, got, want)
				}
			}
			wantCall(t, exitFinding, args, "file exists")
			if i+n > 0 {
				continue
			}
			kit.Must(t, os.WriteFile(resources, []byte(`{"cds": [`), 0o600))
			wantCall(t, exitFinding, []string{"check", "-b", file}, "unexpected EOF")
		}
	}
	for want, args := range map[string][]string{
		"missing flag: -dns":         {},
		"want HOST:PORT":             {"-dns", "a b:1"},
		"missing port":               {"-dns", "orders"},
		"want least_latency":         {"-dns", "orders:1", "-policy", "fastest"},
		`unexpected argument: "all"`: {"-dns", "orders:1", "all"},
	} {
		wantCall(t, exitUsage, append([]string{"new", "-dir", t.TempDir()}, args...), want)
	}
}

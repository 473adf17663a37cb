// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// The namespace of all services and of the client, and the latter's service account.
const namespace, account = "shop", "cart"

// clientIP is the client's address. The control plane forgets which other services have endpoints
// at an address when one of them changes, so no service but the client's own has endpoints there.
const clientIP = "127.0.0.2"

// A mesh is a control plane of Istio's that reads its configuration from a folder, and an agent.
type mesh struct {
	t         testing.TB
	dir       string
	documents map[string]string // of the configuration, by file name
	services  int

	addr         string   // of the control plane, for the agent
	pilotEnv     []string // in addition to the usual environment
	pilotArgs    []string // in addition to the usual arguments
	pilot, agent *process
	unreachable  func() // stops forwarding to the control plane
	logs         kit.Logs
}

// newMesh returns a mesh without services, of which nothing runs yet.
func newMesh(t testing.TB) *mesh {
	t.Helper()
	m := &mesh{t: t, dir: t.TempDir(), addr: freeAddr(t), documents: map[string]string{}}
	for _, dir := range []string{"config", "agent", "certs"} {
		kit.Must(t, os.Mkdir(m.path(dir), 0o700))
	}
	m.write("mesh.yaml", "trustDomain: cluster.local\nrootNamespace: istio-system\n")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the channels:\n%s", &m.logs)
		}
	})
	return m
}

// path returns the path of a file of the mesh.
func (m *mesh) path(name string) string { return filepath.Join(m.dir, name) }

// write replaces a file at once, so that no program reads a part of it.
func (m *mesh) write(name, text string) {
	m.t.Helper()
	written := m.path("written")
	if err := os.WriteFile(written, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(written, m.path(name)); err != nil {
		m.t.Fatal(err)
	}
}

// configure replaces a document of the configuration. A control plane that is not running gets it
// when it starts.
func (m *mesh) configure(name, text string) {
	m.t.Helper()
	m.documents[name] = text
	if m.pilot != nil {
		m.write("config/"+name, text)
	}
}

// startPilot starts the control plane. It may overlook services that are in the folder when it
// starts, so it gets them afterwards. It is reachable once it has read them, on the same address
// as before.
func (m *mesh) startPilot() {
	m.t.Helper()
	if err := errors.Join(os.RemoveAll(m.path("config")), os.Mkdir(m.path("config"), 0o700)); err != nil {
		m.t.Fatal(err)
	}
	addr := freeAddr(m.t)
	m.pilot = start(m.t, m.dir, append([]string{
		"CLUSTER_ID=Kubernetes", "ENABLE_CA_SERVER=false", "PILOT_CERT_PROVIDER=none", "ENABLE_LEADER_ELECTION=false",
	}, m.pilotEnv...), os.Getenv(pilotVariable), append([]string{
		"discovery", "--registries=", "--networksConfig=", "--configDir=" + m.path("config"), "--meshConfig=" + m.path("mesh.yaml"),
		"--grpcAddr=" + addr, "--httpAddr=" + freeAddr(m.t), "--httpsAddr=", "--monitoringAddr=", "--secureGRPCAddr=",
		"--ctrlz_address=127.0.0.1", "--ctrlz_port=" + port(freeAddr(m.t)), "--profile=false", "--shutdownDuration=1s",
	}, m.pilotArgs...)...)
	m.pilot.waitFor(m.t, "the control plane to accept connections", func() bool { return accepts("tcp", addr) })
	for _, name := range slices.Sorted(maps.Keys(m.documents)) { // services last
		m.write("config/"+name, m.documents[name])
	}
	read := fmt.Sprintf("Pushing Services:%d ", m.services)
	m.pilot.waitFor(m.t, "the control plane to read its configuration", func() bool { return len(m.pilot.output.With(read)) > 0 })
	m.unreachable = forward(m.t, m.addr, addr)
}

// killPilot ends the control plane without notice.
func (m *mesh) killPilot() {
	m.pilot.kill()
	m.unreachable()
	m.pilot = nil
}

// startAgent starts the agent, which writes the bootstrap.
func (m *mesh) startAgent() {
	m.t.Helper()
	m.agent = start(m.t, m.dir, []string{
		"ISTIO_META_GENERATOR=grpc", "ISTIO_META_CLUSTER_ID=Kubernetes", "POD_NAME=" + account, "POD_NAMESPACE=" + namespace,
		"INSTANCE_IP=" + clientIP, "SERVICE_ACCOUNT=" + account, "TRUST_DOMAIN=cluster.local", "JWT_POLICY=none", "PILOT_CERT_PROVIDER=none",
		"FILE_MOUNTED_CERTS=true", "OUTPUT_CERTS=" + m.path("certs"), "DISABLE_ENVOY=true", "GRPC_XDS_BOOTSTRAP=" + m.bootstrap(),
		fmt.Sprintf(`PROXY_CONFIG={"configPath":%q,"discoveryAddress":%q,"controlPlaneAuthPolicy":"NONE","statusPort":%s}`,
			m.path("agent"), m.addr, port(freeAddr(m.t))),
	}, os.Getenv(agentVariable), "proxy", "sidecar", "--domain", namespace+".svc.cluster.local")
	m.agent.waitFor(m.t, "the agent", func() bool {
		_, err := os.Stat(m.bootstrap())
		return err == nil && accepts("unix", m.path("agent/XDS"))
	})
}

// bootstrap returns the path of the agent's bootstrap.
func (m *mesh) bootstrap() string { return m.path("agent/grpc-bootstrap.json") }

// config returns a Config that uses the agent.
func (m *mesh) config(delta bool) integrate.Config {
	m.t.Helper()
	data, err := os.ReadFile(m.bootstrap())
	if err != nil {
		m.t.Fatal(err)
	}
	return integrate.Config{Bootstrap: data, Delta: delta, Logger: newLogger(&m.logs)}
}

// overlapping returns how often the agent has closed a stream because another one was opened.
func (m *mesh) overlapping() int { return len(m.agent.output.With("overlapping stream")) }

// host returns the full name of a service.
func host(name string) string { return name + "." + namespace + ".svc.cluster.local" }

// target returns the target of a service.
func target(name string) string { return "xds:///" + host(name) + ":7070" }

// cluster returns the name of a service's cluster.
func cluster(name string) string { return "outbound|7070||" + host(name) }

// service configures a service whose backends run as an account.
func (m *mesh) service(name, account string, backends ...*xdstest.Backend) {
	m.t.Helper()
	var addrs []netip.AddrPort
	for _, b := range backends {
		addrs = append(addrs, b.Addr())
	}
	m.endpoints(name, account, addrs...)
}

// endpoints configures a service by the addresses of its endpoints.
func (m *mesh) endpoints(name, account string, addrs ...netip.AddrPort) {
	m.t.Helper()
	var endpoints strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&endpoints, "  - {address: %s, ports: {grpc: %d}, serviceAccount: %s}\n", a.Addr(), a.Port(), account)
	}
	if _, ok := m.documents["service-"+name+".yaml"]; !ok {
		m.services++
	}
	m.configure("service-"+name+".yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: %s}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 7070, name: grpc, protocol: GRPC}]
  endpoints:
%s`, name, namespace, host(name), &endpoints))
}

// route sends a share of the RPCs to a service to another one.
func (m *mesh) route(name, other string, percent int) {
	m.t.Helper()
	m.configure("route-"+name+".yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  hosts: [%[3]s]
  http:
  - route:
    - {destination: {host: %[3]s}, weight: %[4]d}
    - {destination: {host: %[5]s}, weight: %[6]d}
`, name, namespace, host(name), 100-percent, host(other), percent))
}

// mutualTLS configures mutual TLS with Istio's certificates for a service.
func (m *mesh) mutualTLS(name string) {
	m.t.Helper()
	m.configure("rule-"+name+".yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %s, namespace: %s}
spec:
  host: %s
  trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: %[1]s, namespace: %[2]s}
spec: {mtls: {mode: STRICT}}
`, name, namespace, host(name)))
}

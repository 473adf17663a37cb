// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestAttach: a running process by its debug page.
func TestAttach(t *testing.T) {
	w := newWorld(t)
	addr := strings.TrimPrefix(w.page.URL, "http://")
	wantCall(t, exitOK, []string{"attach", addr, "-once", "-interval", "10ms"}, "no active channel of the process")
	w.open(t)
	wantCall(t, exitOK, []string{"attach", addr, "-once", "-interval", "10ms"}, "xds:///orders  READY", "route 0", "eu/a", "ConfigurationApplied", "RPCs/s")
	s := wantCall(t, exitOK, []string{"attach", addr, "-once", "-o", "json"})
	var d debug.Document
	if err := json.Unmarshal([]byte(s.out), &d); err != nil || len(d.Channels) != 1 || d.Channels[0].Target != "xds:///orders" {
		t.Errorf("the document is %+v (%v)", d, err)
	}
	s = wantCall(t, exitOK, []string{"attach", w.page.URL, "-count", "3", "-interval", "10ms"}, "xds:///orders READY", "2 of 2 READY", "25 %")
	if n := strings.Count(s.out, "xds:///orders  READY"); n != 3 {
		t.Errorf("%d views, want 3:\n%s", n, s.out)
	}
	if strings.Contains(s.out, "\x1b") {
		t.Errorf("a file gets the control characters of a terminal: %q", s.out)
	}
	wantCall(t, exitOK, []string{"explain", "orders", "/shop.Cart/Add", "-at", addr}, `cluster "orders"`, "READY")
	wantCall(t, exitFinding, []string{"explain", "nothing", "/shop.Cart/Add", "-at", addr}, "xds:///nothing: the process has no active channel", "xds:///orders")
	wantCall(t, exitFinding, []string{"explain", "orders", "noslash", "-at", addr}, "does not begin with a slash")
	wantCall(t, exitFinding, []string{"attach", w.page.URL + "/elsewhere", "-once"}, "404", "check that the process serves package integrate/debug")
	wantCall(t, exitFinding, []string{"attach", "127.0.0.1:1", "-once"}, "refused")
}

// TestAttachTerminal: on a terminal the view is redrawn.
func TestAttachTerminal(t *testing.T) {
	w := newWorld(t)
	w.open(t)
	var out, errors bytes.Buffer
	e := &env{ctx: t.Context(), stdout: &out, stderr: &errors, now: time.Now, terminal: true}
	if code := e.run([]string{"attach", w.page.URL, "-count", "2", "-interval", "10ms"}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errors.String())
	}
	if n := strings.Count(out.String(), "\x1b[H\x1b[2J"); n != 2 {
		t.Errorf("the view is drawn %d times, want 2", n)
	}
}

// TestAttachHandedOver: a channel that is stock's shows with the reason and the way back.
func TestAttachHandedOver(t *testing.T) {
	d := debug.Document{Channels: []report.TargetStatus{{
		Target: "xds:///orders", Stock: `XDSLB_DISABLE has "ord*"`,
		Rollout: &report.RolloutStatus{Variable: "XDSLB_DISABLE", Value: "ord*", Pattern: "ord*", Forward: "take the pattern out"},
	}}}
	page := pageOf(t, http.StatusOK, &d)
	view := []string{"attach", page.URL, "-once", "-interval", "10ms"}
	wantCall(t, exitOK, view, "xds:///orders UNKNOWN", `note: The channel uses google.golang.org/grpc/xds, not xdslb: XDSLB_DISABLE has "ord*".`, "To switch to xdslb: take the pattern out.")
	wantCall(t, exitOK, []string{"attach", page.URL, "-count", "1"}, "xds:///orders UNKNOWN", "decided by: XDSLB_DISABLE=ord*")
	d.Channels[0].Rollout.Malformed = true
	wantCall(t, exitFinding, view, "ERROR: The channel uses google.golang.org/grpc/xds")
}

// TestAttachMany: channels with errors come first; a target and -problems select channels.
func TestAttachMany(t *testing.T) {
	d := debug.Document{}
	for i := range 30 {
		s := integrate.TargetStatus{Target: fmt.Sprintf("xds:///svc-%d", i), Connectivity: "READY"}
		if i == 20 {
			s.Error = "no Listener"
		}
		d.Channels = append(d.Channels, s)
	}
	page := pageOf(t, http.StatusOK, &d)
	view := []string{"attach", page.URL, "-once", "-interval", "10ms"}
	s := wantCall(t, exitFinding, view, "1 of 30 channels with errors")
	if strings.Index(s.out, "svc-20") > strings.Index(s.out, "svc-0") {
		t.Errorf("the channel with errors is not the first:\n%s", s.out)
	}
	s = wantCall(t, exitFinding, append(view, "-problems"), "xds:///svc-20 READY ERROR: no Listener")
	if strings.Count(s.out, "xds:///") != 1 {
		t.Errorf("-problems shows other channels:\n%s", s.out)
	}
	s = wantCall(t, exitOK, append(view, "svc-7"), "xds:///svc-7")
	if strings.Count(s.out, "xds:///") != 1 {
		t.Errorf("a target shows other channels:\n%s", s.out)
	}
	wantCall(t, exitFinding, append(view, "nothing"), `none of the 30 channels has a target that contains "nothing"`)
	const none = `none of the 30 channels has a target that contains "xds:///zzz"`
	s = wantCall(t, exitOK, []string{"attach", page.URL, "xds:///zzz", "-count", "3", "-interval", "10ms"}, none)
	if s.out != "" || strings.Count(s.errors, none) != 1 {
		t.Errorf("a target without channels shows others:\n%s%s", s.out, s.errors)
	}
}

// TestAttachTLS: the page of a process that asks for a certificate, by files.
func TestAttachTLS(t *testing.T) {
	w := newWorld(t)
	w.open(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	until := time.Now().AddDate(1, 0, 0)
	root, rootKey := certificate(t, "root", until, nil, nil, path("root"))
	certificate(t, "other", until, nil, nil, path("other"))
	certificate(t, "server.test", until, root, rootKey, path("server"))
	certificate(t, "client.test", until, root, rootKey, path("client"))
	own, err := tls.LoadX509KeyPair(path("server.pem"), path("server.key"))
	kit.Must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(root)
	settings := &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}
	page := httptest.NewUnstartedServer(w.page.Config.Handler)
	page.TLS = settings.Clone()
	page.StartTLS()
	defer page.Close()
	flags := []string{"-once", "-interval", "10ms", "-timeout", "1m", "-ca", path("root.pem"), "-cert", path("client.pem"), "-key", path("client.key"), "-server-name", "server.test"}
	at := strings.TrimPrefix(page.URL, "https://")
	wantCall(t, exitOK, append([]string{"attach", at}, flags...), "xds:///orders READY")
	wantCall(t, exitOK, append([]string{"attach", page.URL}, flags...), "xds:///orders READY")
	wantCall(t, exitOK, append([]string{"explain", "orders", "/a/b", "-at", at}, flags[3:]...), "cluster \"orders\"")

	with := func(flag, value string) []string {
		changed := slices.Clone(flags)
		changed[slices.Index(flags, flag)+1] = value
		return changed
	}
	to := []string{"attach", at}
	wantCall(t, exitFinding, append(to, with("-ca", path("other.pem"))...), "certificate")
	wantCall(t, exitFinding, append(to, with("-server-name", "other.test")...), "other.test")
	wantCall(t, exitFinding, append(to, with("-ca", path("root.key"))...), "no certificate in PEM format")
	wantCall(t, exitFinding, append(to, with("-key", path("server.key"))...), "-cert", "private key")
	wantCall(t, exitFinding, append(to, with("-cert", path("nothing"))...), "nothing")
	wantCall(t, exitUsage, append(to, with("-key", "")...), "must be used together")
	wantCall(t, exitFinding, append(to, "-once", "-tls", "-timeout", "1m"), "certificate")
	wantCall(t, exitUsage, append([]string{"attach", w.page.URL}, flags...), "require the scheme https")
}

// certificate writes a certificate and its key to path.pem and path.key.
func certificate(t *testing.T, name string, until time.Time, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, path string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.Must(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: until.AddDate(-10, 0, 0), NotAfter: until,
		IsCA: parent == nil, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames: []string{name},
	}
	if parent == nil {
		parent, parentKey = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	kit.Must(t, err)
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	kit.Must(t, err)
	for file, block := range map[string]*pem.Block{path + ".pem": {Type: "CERTIFICATE", Bytes: der}, path + ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		kit.Must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

// TestDelta: with -delta, the commands use incremental ADS, whatever the bootstrap contains, and
// check reports the variants that a server supports.
func TestDelta(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	control := testplane.StartScripted(testplane.ScriptedOptions{Listener: lis})
	t.Cleanup(control.Stop)
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	kit.Must(t, control.Set(xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})))
	t.Setenv("GRPC_XDS_BOOTSTRAP", saved(t, insecureBootstrap(lis.Addr())))
	control.Serve(true, false) // a stream of the other variant precedes with -delta
	for _, args := range [][]string{
		{"dump", "orders"}, {"explain", "orders", "/a/b"},
	} {
		for i, args := range [][]string{args, append(args, "-delta")} {
			_, before := control.Streams()
			wantCall(t, exitOK, args)
			if _, n := control.Streams(); n-before != 1+i {
				t.Errorf("xdslb %v opened %d streams, want %d", args, n-before, 1+i)
			}
		}
	}
	control.Serve(true, true)
	wantCall(t, exitOK, []string{"check", "-timeout", "1m"}, "ADS is available (")
	wantCall(t, exitOK, []string{"check", "-timeout", "1m", "-delta"}, "ADS is available (")
	control.Serve(true, false)
	wantCall(t, exitOK, []string{"check", "-timeout", "1m"}, "ADS is available (")
	wantCall(t, exitFinding, []string{"check", "-timeout", "1m", "-delta"}, "only the state-of-the-world variant")
	control.Serve(false, true)
	wantCall(t, exitOK, []string{"check", "-timeout", "1m"}, "only incremental ADS")
	control.Serve(false, false)
	wantCall(t, exitFinding, []string{"check", "-timeout", "1m"}, "the server does not serve ADS")
}

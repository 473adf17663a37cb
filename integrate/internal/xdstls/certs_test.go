// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstls

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/xdstls/tlstest"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// logged captures all that is logged.
var logged kit.Logs

// mutual is mutual TLS by the one instance.
var mutual = &picker.TLS{Roots: picker.CertInstance{Instance: "files"}, Identity: picker.CertInstance{Instance: "files"}}

// orders are all orders of three things.
var orders = [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// TestRotation (A29): roots, certificate and key are replaced one file after the other,
// in every order, while connections are made all the time: each of these succeeds, and
// no key is logged.
func TestRotation(t *testing.T) {
	files := tlstest.NewFiles(t)
	ca := tlstest.NewCA(t, "first")
	old := ca.Issue(tlstest.Names{})
	tlstest.Write(t, files.CA, ca.PEM)
	tlstest.Write(t, files.Cert, old.Cert)
	tlstest.Write(t, files.Key, old.Key)
	providers := map[string]bootstrap.CertProvider{"files": {Plugin: "file_watcher", Files: bootstrap.NewCertLoader(bootstrap.CertFiles{
		CertificateFile: files.Cert, PrivateKeyFile: files.Key, CACertificateFile: files.CA, RefreshInterval: 1,
	})}}
	providers["files"].Files.LogTo(slog.New(&logged))
	c := NewCluster("c", providers, true)
	defer c.Close()
	c.Update(mutual)

	// The server trusts all clients that there have been, and moves to another CA when
	// clients can know it.
	var config atomic.Pointer[tls.Config]
	clients := ca.Pool()
	config.Store(&tls.Config{Certificates: []tls.Certificate{old.TLS}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients})
	stop := make(chan struct{})
	made := newTurns(3)
	var wg sync.WaitGroup
	for i := range made.of {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var server error
				_, err := connect(t, c, "", func(conn net.Conn) {
					s := tls.Server(conn, withH2(config.Load()))
					if server = s.Handshake(); server == nil {
						_, _ = s.Read(make([]byte, 1))
					}
				})
				if made.add(i); err != nil || server != nil {
					t.Errorf("client: %v, server: %v", err, server)
				}
			}
		})
	}
	keys := [][]byte{old.Key}
	for _, order := range orders {
		next := tlstest.NewCA(t, "next")
		pair := next.Issue(tlstest.Names{})
		keys = append(keys, pair.Key)
		clients = clients.Clone()
		clients.AppendCertsFromPEM(next.PEM)
		server := config.Load().Clone()
		server.ClientCAs = clients
		config.Store(server)
		made.await() // so that the old one is no longer in use
		names, contents := [3]string{files.CA, files.Cert, files.Key}, [3][]byte{append(bytes.Clone(ca.PEM), next.PEM...), pair.Cert, pair.Key}
		for _, i := range order {
			tlstest.Write(t, names[i], contents[i])
			made.await()
		}
		server = server.Clone()
		server.Certificates = []tls.Certificate{pair.TLS}
		config.Store(server)
		made.await()
		ca = next
	}
	close(stop)
	wg.Wait()
	if identity, err := providers["files"].Files.LoadIdentity(t.Context()); err != nil || !bytes.Equal(identity.Certificate[0], config.Load().Certificates[0].Certificate[0]) {
		t.Errorf("the identity at the end is not the latest (%v)", err)
	}
	checkSecrets(t, keys)
}

// turns counts the iterations of goroutines.
type turns struct {
	mu      sync.Mutex
	changed sync.Cond
	of      []int // by goroutine
}

func newTurns(n int) *turns {
	c := &turns{of: make([]int, n)}
	c.changed.L = &c.mu
	return c
}

func (c *turns) add(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[i]++
	c.changed.Broadcast()
}

// await returns when each goroutine has started and finished an iteration since the call.
func (c *turns) await() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, n := range slices.Clone(c.of) {
		for c.of[i] < n+2 {
			c.changed.Wait()
		}
	}
}

func withH2(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.NextProtos = []string{"h2"}
	return c
}

// checkSecrets looks for lines of keys in the log.
func checkSecrets(t *testing.T, keys [][]byte) {
	t.Helper()
	log := logged.String()
	if log == "" {
		t.Error("nothing is logged of files that do not match")
	}
	for _, key := range keys {
		for line := range bytes.Lines(key) {
			if line = bytes.TrimSpace(line); strings.Contains(log, string(line)) {
				t.Errorf("the log has %s of a private key", line)
			}
		}
	}
}

// TestLateFiles checks that files missing at the first connection are used soon after they
// appear, and that otherwise the handshake's error names them.
func TestLateFiles(t *testing.T) {
	files := tlstest.NewFiles(t)
	ca := tlstest.NewCA(t, "ca")
	pair := ca.Issue(tlstest.Names{})
	synctest.Test(t, func(t *testing.T) {
		c := NewCluster("c", watching(bootstrap.CertFiles{CertificateFile: files.Cert, PrivateKeyFile: files.Key, CACertificateFile: files.CA}), true)
		defer c.Close()
		c.Update(mutual)
		for _, tt := range []struct {
			write func()
			want  []string
		}{
			{func() {}, []string{`the roots of certificate provider instance "files"`, files.CA, "no such file"}},
			{func() { tlstest.Write(t, files.CA, []byte("half")) }, []string{"the roots", files.CA, "no certificate in PEM format"}},
			{func() { tlstest.Write(t, files.CA, ca.PEM) }, []string{`the client's certificate of certificate provider instance "files"`, files.Cert, "no such file"}},
			{func() {
				tlstest.Write(t, files.Cert, pair.Cert)
				tlstest.Write(t, files.Key, []byte("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"))
			}, []string{"the client's certificate", files.Key}},
		} {
			tt.write()
			start := time.Now()
			_, err := c.current.Load().config(t.Context(), Target{cluster: c}, func() bool { return false })
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2VjcmV0") {
					t.Errorf("error %v, want %s", err, want)
				}
			}
			if took := time.Since(start); took != patience {
				t.Errorf("gave up after %v", took)
			}
		}
		time.AfterFunc(3*time.Second, func() { tlstest.Write(t, files.Key, pair.Key) })
		start := time.Now()
		if _, err := c.current.Load().config(t.Context(), Target{cluster: c}, func() bool { return false }); err != nil || time.Since(start) > 4*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// TestUpdateWhileWaiting: a handshake that waits for files goes on by newer settings, at the
// next look.
func TestUpdateWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := tlstest.NewFiles(t)
		ca := tlstest.NewCA(t, "ca")
		tlstest.Write(t, files.CA, ca.PEM)
		c := NewCluster("c", watching(bootstrap.CertFiles{CertificateFile: files.Cert, PrivateKeyFile: files.Key, CACertificateFile: files.CA}), true)
		defer c.Close()
		c.Update(mutual)
		client, server := net.Pipe()
		go serving(certified(ca, tlstest.Names{}))(server)
		start := time.Now()
		done := make(chan error, 1)
		go func() {
			_, err := shakeWithin(t, time.Minute, c, "", client)
			done <- err
		}()
		synctest.Wait() // it waits for files
		c.Update(&picker.TLS{Roots: mutual.Roots})
		if err := <-done; err != nil || time.Since(start) != lookPause {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		_ = client.Close()
		c.Update(nil)
		if _, err := shakeWithin(t, time.Minute, c, "", client); err != errPlain {
			t.Errorf("without TLS settings: %v", err)
		}
	})
}

// TestLastLook checks that files which appeared while the process was stopped are used, even
// though the wait has expired.
func TestLastLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			looks := 0
			_, err := await(t.Context(), func() bool { return false }, func(context.Context) (struct{}, error) {
				if looks++; looks > 1 {
					return struct{}{}, nil
				}
				time.Sleep(patience + lookPause)
				return struct{}{}, os.ErrNotExist
			})
			if err != nil || looks != 2 {
				t.Fatalf("after %d looks: %v", looks, err)
			}
		}
	})
}

// TestMissingProvider checks that an unknown instance, an instance without roots, or
// credentials that do not identify themselves cause an error, and never use the fallback or the
// system's roots. (The resource is normally rejected before that.)
func TestMissingProvider(t *testing.T) {
	files := tlstest.NewFiles(t)
	providers := watching(bootstrap.CertFiles{CertificateFile: files.Cert, PrivateKeyFile: files.Key})
	providers["alien"] = bootstrap.CertProvider{Plugin: "alien"}
	for instance, want := range map[string]string{"gone": "not in the bootstrap", "": "not in the bootstrap", "alien": `plugin "alien" is not registered, or rejects its configuration`, "files": ": no roots"} {
		c := NewCluster("c", providers, true)
		c.Update(&picker.TLS{Roots: picker.CertInstance{Instance: instance}})
		if _, err := connect(t, c, "", func(net.Conn) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("instance %q: error %v, want %s", instance, err, want)
		}
		c.Close()
	}
	c := NewCluster("c", providers, false)
	defer c.Close()
	c.Update(&picker.TLS{SystemRoots: true, AutoHostName: true})
	if _, err := connect(t, c, "h", func(net.Conn) {}); err == nil || !strings.Contains(err.Error(), "integrate.NewCredentials") {
		t.Errorf("hidden credentials: %v", err)
	}
}

// plugin is a certificate provider of a program's own.
type plugin struct {
	built, closed atomic.Int32
	asked         atomic.Pointer[certprovider.BuildOptions]
	material      *certprovider.KeyMaterial
	err           error
}

func (p *plugin) Name() string { return "own" }
func (p *plugin) ParseConfig(config any) (*certprovider.BuildableConfig, error) {
	raw, ok := config.(json.RawMessage)
	if !ok || string(raw) != `{"x":1}` {
		return nil, errors.New("wants x to be 1")
	}
	return certprovider.NewBuildableConfig(p.Name(), raw, func(o certprovider.BuildOptions) certprovider.Provider {
		p.built.Add(1)
		p.asked.Store(&o)
		return p
	}), nil
}
func (p *plugin) KeyMaterial(context.Context) (*certprovider.KeyMaterial, error) {
	return p.material, p.err
}
func (p *plugin) Close() { p.closed.Add(1) }

// TestPlugin checks that a plugin from grpc-go's registry is built when it is first needed, is
// requested with the resource's names, and is closed with the settings.
func TestPlugin(t *testing.T) {
	ca := tlstest.NewCA(t, "ca")
	p := &plugin{material: &certprovider.KeyMaterial{}}
	certprovider.Register(p)
	providers := map[string]bootstrap.CertProvider{"own": {Plugin: "own", Config: json.RawMessage(`{"x":1}`)}}
	c := NewCluster("c", providers, true)
	roots := picker.CertInstance{Instance: "own", CertName: "ROOTCA"}
	c.Update(&picker.TLS{Roots: roots})
	if p.built.Load() != 0 {
		t.Error("built before it is needed")
	}
	server := func() *tls.Config { return certified(ca, tlstest.Names{}) }
	if _, err := connect(t, c, "", serving(server())); err == nil || !strings.Contains(err.Error(), ": no roots") {
		t.Errorf("no roots: %v", err)
	}
	p.err = errors.New("the vault is locked")
	if _, err := connect(t, c, "", serving(server())); err == nil || !strings.Contains(err.Error(), "the vault is locked") {
		t.Errorf("no material: %v", err)
	}
	p.err, p.material = nil, &certprovider.KeyMaterial{Roots: ca.Pool()}
	if _, err := connect(t, c, "", serving(server())); err != nil {
		t.Error(err)
	}
	if o := p.asked.Load(); p.built.Load() != 1 || o.CertName != "ROOTCA" || !o.WantRoot || o.WantIdentity {
		t.Errorf("built %d times, with %+v", p.built.Load(), o)
	}
	client := ca.Issue(tlstest.Names{})
	p.material = &certprovider.KeyMaterial{Roots: ca.Pool(), Certs: []tls.Certificate{client.TLS}}
	c.Update(&picker.TLS{Roots: roots, Identity: picker.CertInstance{Instance: "own"}})
	shown := make(chan []byte, 1)
	config := server()
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	config.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error { shown <- raw[0]; return nil }
	if _, err := connect(t, c, "", serving(config)); err != nil || !bytes.Equal(<-shown, client.TLS.Certificate[0]) {
		t.Errorf("mutual TLS: %v", err)
	}
	c.Close()
	if p.built.Load() != p.closed.Load() {
		t.Errorf("built %d times, closed %d times", p.built.Load(), p.closed.Load())
	}
	if _, err := connect(t, c, "", func(net.Conn) {}); err == nil {
		t.Error("a closed cluster connects")
	}
}

// TestIdentityWithoutCertificate: a client whose provider instance has no certificate_file shows
// no certificate, as with grpc-go's xDS credentials. The error of a server that requires one
// names the instance.
func TestIdentityWithoutCertificate(t *testing.T) {
	ca, c := trusting(t)
	c.Update(mutual)
	config := certified(ca, tlstest.Names{})
	config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, ca.Pool()
	if _, err := connect(t, c, "", serving(config)); err != nil {
		t.Errorf("a server that does not require a certificate: %v", err)
	}
	err := c.current.Load().explain(&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, nil)
	if !strings.Contains(err.Error(), `instance "files" has no certificate, so the client sent none`) {
		t.Errorf("a server that requires a certificate: %v", err)
	}
}

// TestUnreadable: files that may not be read are an error that names them.
func TestUnreadable(t *testing.T) {
	files := tlstest.NewFiles(t)
	if err := os.Mkdir(files.CA, 0o700); err != nil { // also root cannot read it
		t.Fatal(err)
	}
	m := (&Cluster{providers: watching(bootstrap.CertFiles{CACertificateFile: files.CA})}).material(picker.CertInstance{Instance: "files"}, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.loadRoots(ctx, func() bool { return false }); err == nil || !strings.Contains(err.Error(), files.CA) {
		t.Errorf("error %v", err)
	}
}

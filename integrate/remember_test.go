// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestStartWithoutControlPlane: while no control plane can be reached, new channels serve their first RPC within the
// failover time and a second, from the resources that an earlier channel remembered, or from a resource file as the
// last server. The status and the log say so. They return to the control plane within 15 seconds of its return, without a
// failed RPC.
func TestStartWithoutControlPlane(t *testing.T) {
	const targets = 20
	name := func(i int) string { return fmt.Sprint("target-", i) }
	for _, way := range []string{"remembered", "file"} {
		dir := t.TempDir()
		t.Run(way, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				backends, control := b.backends(1), b.control()
				var all xdstest.Resources
				for i := range targets {
					r := xdstest.Service(name(i), xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
					all.Listeners, all.Routes = append(all.Listeners, r.Listeners...), append(all.Routes, r.Routes...)
					all.Clusters, all.Endpoints = append(all.Clusters, r.Clusters...), append(all.Endpoints, r.Endpoints...)
				}
				set(t, control, all)
				book := &kit.Logs{}
				cfg := b.config(control)
				cfg.Logger, cfg.Resources.Remember = slog.New(book), dir
				var before []*grpc.ClientConn
				for i := range targets {
					before = append(before, b.dialTo(cfg, name(i)))
					succeed(t, before[i])
				}
				for _, cc := range before {
					_ = cc.Close()
				}
				synctest.Wait()
				files, err := filepath.Glob(filepath.Join(dir, "*-*"))
				if err != nil || len(files) != 1 {
					t.Fatalf("files %q, %v; want one", files, err)
				}
				if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("file %v, %v; want mode 0600", info, err)
				}
				control.Stop()
				if way == "file" { // both have the same format
					cfg.Resources.Remember = ""
					cfg.Bootstrap = []byte(strings.Replace(string(cfg.Bootstrap), `}]}`, `}, {"server_uri": "file:`+files[0]+`"}]}`, 1))
				}
				time.Sleep(time.Hour)
				var after []*grpc.ClientConn
				for i := range targets {
					after = append(after, b.dialTo(cfg, name(i)))
				}
				begin := time.Now()
				for _, cc := range after {
					succeed(t, cc, grpc.WaitForReady(true))
				}
				if took := time.Since(begin); took > 2*time.Second {
					t.Errorf("the first RPCs took %v, want the failover time of a second, and a second", took)
				}
				used := func(cc *grpc.ClientConn) (uris string, problem string) {
					status, err := integrate.StatusOf(cc)
					kit.Must(t, err)
					for _, s := range status.Servers {
						if s.InUse && s.Connected {
							uris, problem = uris+s.URI, problem+s.SourceError
						}
					}
					for _, r := range status.Resources {
						if r.Server != uris {
							t.Errorf("%s %q is from %q, want %q", r.Type, r.Name, r.Server, uris)
						}
					}
					return uris, problem
				}
				uris, problem := used(after[0])
				if !strings.HasPrefix(uris, way+":") || (way == "remembered") != strings.Contains(problem, "remembered 1h0m") {
					t.Errorf("server %q, problem %q", uris, problem)
				}
				if way == "remembered" {
					book.WantOne(t, "WARN", "source", "remembered 1h0m")
				}
				kit.Must(t, control.Restart())
				for i := range 150 {
					if _, err := call(t, after[i%targets]); err != nil {
						t.Errorf("RPC to %s: %v", name(i%targets), err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				for i, cc := range after {
					if uris, _ := used(cc); uris != control.Addr() {
						t.Errorf("%s: server %q in use 15 s after the return of %q", name(i), uris, control.Addr())
					}
				}
			})
		})
	}
}

// TestFileChangesUnderLoad: no RPC fails while the endpoints in a resource file change, with a half-written file
// between two versions. The RPCs are not retried.
func TestFileChangesUnderLoad(t *testing.T) {
	name := filepath.Join(t.TempDir(), "resources.json")
	inBubble(t, func(t *testing.T, b *bubble) {
		backends := b.backends(3)
		text := func(version int) []byte { // each version lacks one backend
			left := slices.Delete(slices.Clone(backends), version%3, version%3+1)
			r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(left...)})
			var list []json.RawMessage
			for _, m := range []proto.Message{r.Listeners[0], r.Routes[0], r.Clusters[0], r.Endpoints[0]} {
				packed, err := anypb.New(m)
				kit.Must(t, err)
				raw, err := protojson.Marshal(packed)
				kit.Must(t, err)
				list = append(list, raw)
			}
			file, err := json.Marshal(map[string]any{"resources": list})
			kit.Must(t, err)
			return file
		}
		kit.Must(t, os.WriteFile(name, text(0), 0o600))
		cc := b.dial(integrate.Config{Linger: -1, Bootstrap: []byte(`{"xds_servers": [{"server_uri": "file:` + name + `"}], "node": {"id": "n"}}`)})
		if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(50 * time.Millisecond):
					}
					if _, err := call(t, cc); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for version := 1; version <= 20; version++ {
			next := text(version)
			kit.Must(t, os.WriteFile(name, next[:len(next)/2], 0o600))
			time.Sleep(3 * time.Second)
			kit.Must(t, os.WriteFile(name, next, 0o600))
			time.Sleep(3 * time.Second)
			x, err := integrate.Explain(t.Context(), cc, "/a/b")
			kit.Must(t, err)
			for i, backend := range backends {
				if got, want := strings.Contains(x.String(), backend.Addr().String()), i != version%3; got != want {
					t.Errorf("version %d: endpoint %v is in use: %v, want %v", version, backend.Addr(), got, want)
				}
			}
		}
		close(done)
		callers.Wait()
	})
}

// TestWritableFiles checks that a bootstrap or an overlay that every user of the machine can change is
// logged once, and that other files are not.
func TestWritableFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no such permission")
	}
	dir, log := t.TempDir(), &kit.Logs{}
	for _, mode := range []os.FileMode{0o666, 0o664, 0o602, 0o600} {
		files := map[string]string{
			"GRPC_XDS_BOOTSTRAP": `{"node": {"id": "n"}, "xds_servers": [{"server_uri": "localhost:1", "channel_creds": [{"type": "insecure"}]}]}`,
			"XDSLB_OVERLAY":      `{"patches": [{"resource": "cluster", "name": "*", "merge": {"lb_policy": "ROUND_ROBIN"}}]}`,
		}
		for variable, text := range files {
			file := filepath.Join(dir, variable+mode.String())
			kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
			if err := os.Chmod(file, mode); err != nil { // regardless of the umask
				t.Fatal(err)
			}
			t.Setenv(variable, file)
		}
		for range 2 {
			if _, err := integrate.NewBuilder(integrate.Config{Logger: slog.New(log)}); err != nil {
				t.Fatal(err)
			}
		}
		want := 0
		if mode&0o002 != 0 {
			want = 1
		}
		for variable, kind := range map[string]string{"GRPC_XDS_BOOTSTRAP": "bootstrap", "XDSLB_OVERLAY": "overlay"} {
			file := filepath.Join(dir, variable+mode.String())
			if n := len(log.With("WARN xdslb: every user of the machine can change", "kind="+kind, "file="+file, "chmod o-w")); n != want {
				t.Errorf("%v: %d lines about the %s, want %d:\n%s", mode, n, kind, want, log)
			}
		}
	}
}

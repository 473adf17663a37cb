// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

func init() {
	RegisterFiles()
	xds.KeepBytes()
}

// document is a resource file with a target svc at a port.
func document(port int) string {
	return fmt.Sprintf(`{
  "lds": [{"name": "svc", "api_listener": {"api_listener": {
    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "http_filters": [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    "rds": {"route_config_name": "svc", "config_source": {"ads": {}}}}}}],
  "rds": [{"name": "svc", "virtual_hosts": [{"domains": ["*"], "routes": [{"match": {"prefix": ""}, "route": {"cluster": "svc"}}]}]}],
  "cds": [{"name": "svc", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}}],
  "eds": [{"cluster_name": "svc", "endpoints": [{"locality": {"zone": "a"}, "load_balancing_weight": 1, "lb_endpoints": [
    {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}}}]}]}]
}`, port)
}

// TestFile: a resource file beside the bootstrap is a control plane. A change is in use within two
// seconds. A file that is invalid, cut off or gone keeps the previous resources and is reported, until it is
// valid again. A file with another target only deletes the target, without an error for channels that use it.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "resources.json")
	write := func(text string) {
		t.Helper()
		kit.Must(t, os.WriteFile(name, []byte(text), 0o600))
	}
	synctest.Test(t, func(t *testing.T) {
		cfg, err := bootstrap.Parser{}.Parse("file "+filepath.Join(dir, "bootstrap.json"), []byte(`{"xds_servers": [{"server_uri": "file:resources.json"}]}`))
		kit.Must(t, err)
		if got := cfg.Servers[0].URI; got != "file://"+name {
			t.Errorf("URI %q", got)
		}
		book := &kit.Logs{}
		c := xds.Acquire(cfg, xds.Options{Linger: -1, Logger: slog.New(book)})
		w := &modelWatch{}
		cancel := c.View(nil, "").Watch("svc", "svc", w)
		defer func() {
			cancel()
			c.Release()
			time.Sleep(time.Minute) // its goroutines end
		}()
		time.Sleep(time.Second)
		if err := w.outcome().err; err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Fatalf("error %v without the file", err)
		}
		write(document(1))
		time.Sleep(2 * time.Second)
		if got := w.outcome(); got.port != 1 {
			t.Fatalf("port %d, error %v, want port 1", got.port, got.err)
		}
		for i, broken := range []string{document(9)[:200], "", `{"cds": [{"name": 7}]}`, `{"no": "resources"}`} {
			write(broken)
			time.Sleep(2 * time.Second)
			if s := c.Servers()[0]; w.outcome().port != i+1 || s.SourceErr == nil || s.SourceFailures != uint64(i+1) {
				t.Errorf("%q: port %d, want %d; status %+v", broken, w.outcome().port, i+1, s)
			}
			write(document(i + 2))
			time.Sleep(2 * time.Second)
			if s := c.Servers()[0]; w.outcome().port != i+2 || s.SourceErr != nil {
				t.Errorf("after %q: port %d, want %d; status %+v", broken, w.outcome().port, i+2, s)
			}
		}
		if lines := book.With("ERROR"); len(lines) == 0 {
			t.Error("no line about an invalid file at level ERROR")
		}
		write(strings.ReplaceAll(document(8), `"svc"`, `"other"`))
		time.Sleep(2 * time.Second)
		if got := w.outcome(); got.port == 0 || got.lost > 0 {
			t.Errorf("a channel in use lost its target: %v", got.err)
		}
		late := &modelWatch{}
		defer c.View(nil, "").Watch("other", "other", late)()
		time.Sleep(time.Second)
		if got := late.outcome(); got.port != 8 {
			t.Errorf("port %d of the other target: %v", got.port, got.err)
		}
	})
}

// TestFileOfAuthority: the server of an authority (A47) may be a resource file.
func TestFileOfAuthority(t *testing.T) {
	name := filepath.Join(t.TempDir(), "resources.json")
	id := func(typ string) string { return `"xdstp://local/` + typ + `/svc"` }
	listener, routes := id("envoy.config.listener.v3.Listener"), id("envoy.config.route.v3.RouteConfiguration")
	cluster, assignment := id("envoy.config.cluster.v3.Cluster"), id("envoy.config.endpoint.v3.ClusterLoadAssignment")
	kit.Must(t, os.WriteFile(name, []byte(strings.NewReplacer(`"lds": [{"name": "svc"`, `"lds": [{"name": `+listener, `"route_config_name": "svc"`, `"route_config_name": `+routes,
		`"rds": [{"name": "svc"`, `"rds": [{"name": `+routes, `"cluster": "svc"`, `"cluster": `+cluster, `"cds": [{"name": "svc"`, `"cds": [{"name": `+cluster,
		`{"eds_config"`, `{"service_name": `+assignment+`, "eds_config"`, `"cluster_name": "svc"`, `"cluster_name": `+assignment).Replace(document(7))), 0o600))
	synctest.Test(t, func(t *testing.T) {
		cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [{"server_uri": "passthrough:///none", "channel_creds": [{"type": "insecure"}]}],
			"authorities": {"local": {"xds_servers": [{"server_uri": "file:`+name+`"}]}}}`))
		kit.Must(t, err)
		c := xds.Acquire(cfg, xds.Options{Linger: -1, Logger: slog.New(slog.DiscardHandler), DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("unreachable") })}})
		w := &modelWatch{}
		cancel := c.View(nil, "").Watch(strings.Trim(listener, `"`), "svc", w)
		time.Sleep(2 * time.Second)
		if got := w.outcome(); got.port != 7 {
			t.Errorf("port %d, error %v; want port 7", got.port, got.err)
		}
		cancel()
		c.Release()
		time.Sleep(time.Minute) // its goroutines end
	})
}

// TestFileOrder: a changed file whose routes lead to a cluster that it adds has an error at no time, although thousands of
// other clusters change, which takes a while.
func TestFileOrder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "resources.json")
	write := func(cluster string) {
		text := strings.ReplaceAll(strings.ReplaceAll(document(1), `"cluster": "svc"`, `"cluster": "`+cluster+`"`), `"cds": [{"name": "svc"`, `"cds": [{"name": "`+cluster+`"`)
		text += `{"cds": [`
		for i := range 1000 {
			text += fmt.Sprintf(`{"name": "%s%d", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}},`, cluster, i)
		}
		kit.Must(t, os.WriteFile(name, []byte(strings.TrimSuffix(text, ",")+"]}"), 0o600))
	}
	synctest.Test(t, func(t *testing.T) {
		write("a")
		cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [{"server_uri": "file://`+name+`"}]}`))
		kit.Must(t, err)
		c := xds.Acquire(cfg, xds.Options{Linger: -1, Logger: slog.New(slog.DiscardHandler)})
		w := &clusterErrors{}
		cancel := c.View(nil, "").Watch("svc", "svc", w)
		for _, cluster := range []string{"b", "c"} {
			time.Sleep(2 * time.Second)
			write(cluster)
		}
		time.Sleep(2 * time.Second)
		cancel()
		c.Release()
		time.Sleep(time.Minute) // its goroutines end
		if w.last != "c" || len(w.errs) > 0 {
			t.Errorf("cluster %q in use, errors %v", w.last, w.errs)
		}
	})
}

// clusterErrors is a watcher that records the errors of clusters.
type clusterErrors struct {
	last string
	errs []error
}

func (w *clusterErrors) Update(c *picker.Config) {
	w.last = c.Clusters[0].Name
	if err := c.Clusters[0].Err; err != nil {
		w.errs = append(w.errs, err)
	}
}

func (w *clusterErrors) Error(err error) { w.errs = append(w.errs, err) }

// TestRememberedFile: a remembered file is read unless it is a link, writable by others, or older than a day, or
// from the future. A file that replaces a link leaves the link's target alone, and old temporary files go.
func TestRememberedFile(t *testing.T) {
	dir := t.TempDir()
	name, other := filepath.Join(dir, "r"), filepath.Join(dir, "other")
	read := func(want string) {
		t.Helper()
		text, _, err := remembered{name}.read()
		if want == "" && (err != nil || string(text) != document(1)) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes, error %v; want error %q", len(text), err, want)
		}
	}
	check := func(err error) {
		t.Helper()
		kit.Must(t, err)
	}
	read("no such file")
	check(os.WriteFile(other, []byte("other"), 0o600))
	if err := os.Symlink(other, name); err == nil {
		read("not a regular file")
	}
	left := filepath.Join(dir, ".xdslb-left")
	check(os.WriteFile(left, nil, 0o600))
	check(os.Chtimes(left, time.Time{}, time.Now().Add(-2*time.Hour)))
	check(replaceFile(name, []byte(document(1))))
	read("")
	if text, err := os.ReadFile(other); err != nil || string(text) != "other" {
		t.Errorf("the target of a link is %q, %v", text, err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("an old temporary file is left")
	}
	for age, want := range map[time.Duration]string{23 * time.Hour: "", 25 * time.Hour: "25h0m0s old", -time.Hour: "old"} {
		at := time.Now().Add(-age)
		check(os.Chtimes(name, at, at))
		read(want)
	}
	now := time.Now()
	check(os.Chtimes(name, now, now))
	if runtime.GOOS != "windows" {
		own := user
		user = func() int { return own() + 1 }
		read("not a regular file of this user")
		user = own
		check(os.Chmod(name, 0o620))
		read("nobody else may write")
	}
}

// TestReplaceKilled: of 20 processes that are killed while they replace a file, none leaves a file that is
// neither the old nor the new one.
func TestReplaceKilled(t *testing.T) {
	const variable = "XDSLB_TEST_REPLACE"
	texts := [][]byte{[]byte(document(1) + strings.Repeat(" ", 1<<20)), []byte(document(2) + strings.Repeat(" ", 3<<20))}
	if name := os.Getenv(variable); name != "" {
		_, _ = os.Stdout.WriteString("begin\n")
		for i := 0; ; i++ {
			kit.Must(t, replaceFile(name, texts[i%2]))
		}
	}
	name := filepath.Join(t.TempDir(), "r")
	kit.Must(t, replaceFile(name, texts[0]))
	for i := range 20 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestReplaceKilled$")
		cmd.Env = append(os.Environ(), variable+"="+name)
		out, err := cmd.StdoutPipe()
		kit.Must(t, err)
		kit.Must(t, cmd.Start())
		_, _ = io.ReadFull(out, make([]byte, len("begin\n")))
		time.Sleep(time.Duration(i) * time.Millisecond) // another moment each time; none can fail
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		text, _, err := remembered{name}.read()
		if err != nil || !bytes.Equal(text, texts[0]) && !bytes.Equal(text, texts[1]) {
			t.Fatalf("%d bytes after a kill, %v", len(text), err)
		}
	}
}

// FuzzResourceFile checks that a resource file is read the same way each time, that its resources can be
// delivered, and that a text that is cut off within a document is an error rather than other resources.
func FuzzResourceFile(f *testing.F) {
	for _, text := range []string{document(1), document(1) + document(2), `{"cds": [{"name": "a"}]}`, `[]`, `{"rds": {"name": 1}}`,
		`{"x": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "b", "type": 7}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(text)
		if err != nil || len(again.byName) != len(r.byName) {
			t.Fatalf("%d resources, then %v", len(r.byName), err)
		}
		for k, found := range r.byName {
			m, err := found.GetResource().UnmarshalNew()
			if err != nil {
				t.Fatalf("%v: %v", k, err)
			}
			if other, _ := again.byName[k].GetResource().UnmarshalNew(); !proto.Equal(m, other) {
				t.Errorf("%v differs", k)
			}
		}
		if text, ok := bytes.CutSuffix(bytes.TrimSpace(text), []byte("}")); ok {
			if _, err := Parse(text); err == nil {
				t.Error("the text without its last brace is valid")
			}
		}
	})
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestDocuments: what Markdown files name by a name that is no Go name is there as well.
// These are environment variables, metrics and paths in backticks. Blocks of JSON are
// bootstraps or resources that are accepted.
func TestDocuments(t *testing.T) { noFaults(t, wrongDocuments) }

// The check takes what is there, and sees what is not.
func TestWrongDocuments(t *testing.T) {
	text := func(lines ...string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(strings.Join(lines, "\n") + "\n")}
	}
	const good = `{"xds_servers": [{"server_uri": "x:1", "channel_creds": [{"type": "insecure"}]}], "node": {"id": "n"}}`
	const cluster = `"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c", "type": "EDS"`
	got, err := wrongDocuments(fstest.MapFS{
		"integrate/METRICS.md": text("| `xdslb.lb.picks` | x | `grpc.lb.picks` |"),
		"integrate/config.go":  text("package integrate", `const e = "GRPC_XDS_BOOTSTRAP"`),
		"GOOD.md": text("`GRPC_XDS_BOOTSTRAP` `ROUND_ROBIN` `xdslb.lb.picks` `xdslb_lb_picks_total` `grpc.lb.picks` `integrate/config.go` `xdslb.delta_ads`",
			"```json", good, "```", "```json", `{`+cluster+`, "edsClusterConfig": {"edsConfig": {"ads": {}}}}`, "```"),
		"BAD.md": text("`GRPC_NONE` `xdslb.lb.none` `xdslb_lb_none` `grpc.lb.none` `integrate/none.go`",
			"```json", `{"xds_servers": []}`, "```", "```json", `{`+cluster+`}`, "```", "```json", `{`, "```", "```json", `{}`, "```",
			"```sh", "GRPC_NOT=1 true", "```"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"BAD.md:1: GRPC_NONE: no code reads this environment variable",
		"BAD.md:15: GRPC_NOT: no code reads this environment variable",
		"BAD.md:1: xdslb.lb.none: integrate/METRICS.md has no such metric",
		"BAD.md:1: xdslb_lb_none: integrate/METRICS.md has no such metric",
		"BAD.md:1: grpc.lb.none: integrate/METRICS.md has no such metric",
		"BAD.md:1: integrate/none.go: there is no such file",
		"BAD.md:2: xds: bootstrap: BAD.md: $.xds_servers: must",
		"BAD.md:5: Cluster \"c\": eds_cluster_config.eds_config: must",
		"BAD.md:8: not JSON: ",
		"BAD.md:11: neither a bootstrap (xds_servers) nor a resource (@type)",
	}
	if len(got) != len(want) {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

var (
	variable = regexp.MustCompile(`\b(?:GRPC|XDSLB)_[A-Z_]*[A-Z]\b`)
	metric   = regexp.MustCompile("`((?:xdslb\\.(?:lb|client|xds_client)|grpc\\.(?:lb|xds_client))\\.[a-z_.]*[a-z])`|`(xdslb_(?:lb|client|xds_client)_[a-z_]*[a-z])`")
	folder   = regexp.MustCompile("`((?:\\.ci|\\.github|bench|edf|fuzz|integrate|picker|ringhash|xds)/[\\w./-]*\\w)`")
	document = regexp.MustCompile("(?ms)^```json\n(.*?)^```")
	counted  = regexp.MustCompile(`_(total|seconds|bucket|sum|count)$`)
)

// foreign are environment variables that no code here reads.
var foreign = map[string]bool{}

// wrongDocuments returns what is named and does not exist, with the lines.
func wrongDocuments(fsys fs.FS) (faults []string, err error) {
	var code strings.Builder
	var pages []string
	texts := make(map[string]string)
	if err := sources(fsys, func(name, text string) {
		if path.Ext(name) == ".go" {
			code.WriteString(text)
		} else if path.Base(name) != "CHANGELOG.md" {
			pages, texts[name] = append(pages, name), text
		}
	}); err != nil {
		return nil, err
	}
	reads := func(v string) bool { return strings.Contains(code.String(), `"`+v+`"`) }
	for v := range foreign {
		if reads(v) {
			faults = append(faults, fmt.Sprintf("code reads %s: remove it from foreign in bench/house/documents_test.go", v))
		}
	}
	metrics := texts["integrate/METRICS.md"]
	for _, name := range pages {
		text := texts[name]
		at := func(offset int, format string, args ...any) {
			faults = append(faults, faultAt(name, text, offset, format, args...))
		}
		for _, m := range variable.FindAllStringIndex(text, -1) {
			if v := text[m[0]:m[1]]; !foreign[v] && !reads(v) {
				at(m[0], "%s: no code reads this environment variable", v)
			}
		}
		for _, m := range metric.FindAllStringSubmatchIndex(text, -1) {
			if metric := text[m[0]+1 : m[1]-1]; !hasMetric(metrics, metric) {
				at(m[0], "%s: integrate/METRICS.md has no such metric", metric)
			}
		}
		for _, m := range folder.FindAllStringSubmatchIndex(text, -1) {
			if file := text[m[2]:m[3]]; !exists(fsys, file) {
				at(m[0], "%s: there is no such file", file)
			}
		}
		for _, m := range document.FindAllStringSubmatchIndex(text, -1) {
			if err := readJSON(name, text[m[2]:m[3]]); err != nil {
				at(m[0], "%v", err)
			}
		}
	}
	return faults, nil
}

// exists reports whether there is a file, a folder, or a test "folder.TestName", which
// TestReferences looks up.
func exists(fsys fs.FS, name string) bool {
	if i := strings.LastIndex(name, "."); i > 0 && testName.MatchString(name[i+1:]) {
		name = name[:i]
	}
	_, err := fs.Stat(fsys, name)
	return err == nil || strings.HasPrefix(name, "bench/out/") // which make fills
}

// hasMetric reports whether the table of metrics has a name, which may be Prometheus'.
func hasMetric(table, name string) bool {
	if !strings.HasPrefix(name, "xdslb_") {
		return strings.Contains(table, "`"+name+"` |")
	}
	for _, m := range regexp.MustCompile("`(xdslb\\.[a-z_.]+)` \\|").FindAllStringSubmatch(table, -1) {
		have := strings.ReplaceAll(m[1], ".", "_")
		for rest := name; rest != ""; rest = counted.ReplaceAllString(rest, "") {
			if rest == have {
				return true
			}
			if !counted.MatchString(rest) {
				break
			}
		}
	}
	return false
}

// readJSON returns why a client would not take a block of JSON.
func readJSON(name, text string) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &keys); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	switch {
	case keys["xds_servers"] != nil:
		_, err := bootstrap.Parse(name, []byte(text))
		return err
	case keys["@type"] != nil:
		var a anypb.Any
		if err := protojson.Unmarshal([]byte(text), &a); err != nil {
			return err
		}
		kind, ok := resource.TypeOf(a.GetTypeUrl())
		if !ok {
			return fmt.Errorf("%s is no type of resource", a.GetTypeUrl())
		}
		_, err := resource.Decode(kind, a.GetValue(), resource.Options{})
		return err
	}
	return fmt.Errorf("neither a bootstrap (xds_servers) nor a resource (@type)")
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

// testParser supports the credentials of a program that registers some types: google_default,
// and "picky" which accepts no configuration.
func testParser() Parser {
	return Parser{
		ChannelCreds: func(name string) ChannelBuilder {
			switch name {
			case "google_default":
				return &fakeChannel{}
			case "picky":
				return &fakeChannel{err: errors.New("green is not a color")}
			}
			return nil
		},
		CallCreds: func(name string) CallBuilder {
			if name == "picky" {
				return &fakeCall{err: errors.New("green is not a color")}
			}
			return nil
		},
	}
}

// golden compares got with the golden file of a document, or rewrites it.
func golden(t *testing.T, document, got string) {
	t.Helper()
	name := strings.TrimSuffix(document, ".json") + ".golden"
	if *update {
		kit.Must(t, os.WriteFile(name, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(name)
	kit.Must(t, err)
	if got != string(want) {
		t.Errorf("%s:\n got: %s\nwant: %s", name, got, want)
	}
}

// documents returns the documents of a directory of testdata.
func documents(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", dir, "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no documents in testdata/%s: %v", dir, err)
	}
	return names
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	kit.Must(t, err)
	return data
}

// checkMistakes checks that the errors that err joins, without the "and n more", are complete.
func checkMistakes(t *testing.T, source string, err error) {
	t.Helper()
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		if e, ok := err.(*parseError); !ok && !strings.Contains(err.Error(), " more") {
			t.Errorf("error %q is a %T, want *parseError", err, err)
		} else if ok && (e.Source != source || e.Path == "" || e.Problem == "" || e.Fix == "") {
			t.Errorf("error %#v is incomplete, want its source %s, path, problem and fix", e, source)
		}
	}
}

// TestBroken checks that error messages contain what users need: source, JSON path and remedy,
// within a short time, for a corpus of broken documents.
func TestBroken(t *testing.T) {
	const source = "file /etc/xds/bootstrap.json"
	names := documents(t, "broken")
	if len(names) < 30 {
		t.Errorf("%d broken documents, want at least 30", len(names))
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			p := testParser()
			if strings.Contains(name, "google_default") {
				p = Parser{}
			}
			doc := read(t, name)
			var c *Config
			var err error
			if n := testing.AllocsPerRun(5, func() { c, err = p.Parse(source, doc) }); n > 2000 {
				t.Errorf("Parse allocates %v times, which may take longer than 100 ms", n)
			}
			synctest.Test(t, func(t *testing.T) { // whose time passes when all wait
				start := time.Now()
				if _, _ = p.Parse(source, doc); !time.Now().Equal(start) {
					t.Errorf("Parse waits for %v", time.Since(start))
				}
			})
			if err == nil {
				t.Fatalf("Parse succeeded: %v", c)
			}
			checkMistakes(t, source, err)
			golden(t, name, err.Error()+"\n")
		})
	}
}

// TestIgnored checks that unknown fields are reported at every level, but not fields that Istio
// writes.
func TestIgnored(t *testing.T) {
	for _, name := range documents(t, "good") {
		if c, err := testParser().Parse("test", read(t, name)); strings.HasPrefix(filepath.Base(name), "istio") && (err != nil || len(c.Ignored) > 0) {
			t.Errorf("%s: %q, %v", filepath.Base(name), c.Ignored, err)
		}
	}
	c, err := Parser{}.Parse("test", []byte(`{
		"xds_servers": [{
			"server_uri": "a", "server_feature": [], "server_features": ["xds_v3", "xdslb.delta_ads", "xdslb.delta", 3],
			"channel_creds": [{"type": "tls", "config": {"ca_file": "x", "ca_certificate_file": "y"}, "options": {}}]
		}],
		"Node": {}, "node": {"id": "n", "Id": "n", "userAgentName": "x", "client_features": [], "locality": {"region": "r", "sub-zone": "x"}, "metadata": {"any": 1}},
		"authorities": {"a b": {"xds_server": []}},
		"certificate_providers": {"p": {"plugin_name": "file_watcher", "configuration": {}, "config": {"ca_certificate_file": "x", "refresh": "1s"}}, "q": {"plugin_name": "q", "config": {"any": 1}}},
		"server_listener_resource_name_template": "x", "allowed_grpc_services": {"dns:///a:443": {"channel_creds": [{"type": "google_default"}]}}
	}`))
	kit.Must(t, err)
	want := []string{
		"$.Node", `$.authorities["a b"].xds_server`, "$.certificate_providers.p.config.refresh", "$.certificate_providers.p.configuration",
		"$.node.Id", `$.node.locality["sub-zone"]`, "$.xds_servers[0].channel_creds[0].config.ca_file", "$.xds_servers[0].channel_creds[0].options",
		"$.xds_servers[0].server_feature", "$.xds_servers[0].server_features[2]", "$.xds_servers[0].server_features[3]",
	}
	if got := slices.Sorted(slices.Values(c.Ignored)); !slices.Equal(got, want) {
		t.Errorf("ignored are %q, want %q", got, want)
	}
}

// TestGood compares the parsed form of valid documents, including the node message, and checks
// that it is a fixed point of parsing.
func TestGood(t *testing.T) {
	for _, name := range documents(t, "good") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			c, err := testParser().Parse("test", read(t, name))
			kit.Must(t, err)
			node, err := protojson.Marshal(c.LRSNode())
			kit.Must(t, err)
			var tree any // protojson varies its white space on purpose
			kit.Must(t, json.Unmarshal(node, &tree))
			golden(t, name, c.String()+"\n\nnode "+string(canonical(tree))+"\n")

			again, err := testParser().Parse("again", canonical(c.document(false)))
			if err != nil {
				t.Fatalf("parsing the result: %v", err)
			}
			if again.Fingerprint() != c.Fingerprint() || again.String() != c.String() {
				t.Errorf("parsing the result gives %s, want %s", again, c)
			}
		})
	}
}

// T-BOOT-1, A30: features of any type are tolerated, known ones become fields.
func TestServerFeatures(t *testing.T) {
	s := parse1(t, `[7, null, {"a": []}, "xds_v3", "Fail_On_Data_Errors"]`)
	if s.FailOnDataErrors || s.IgnoreResourceDeletion || s.TrustedXDSServer || s.ResourceTimerIsTransientError {
		t.Errorf("unknown features set some of %+v", s)
	}
	for name, field := range map[string]func(*Server) bool{
		"ignore_resource_deletion":          func(s *Server) bool { return s.IgnoreResourceDeletion }, // A53
		"trusted_xds_server":                func(s *Server) bool { return s.TrustedXDSServer },
		"fail_on_data_errors":               func(s *Server) bool { return s.FailOnDataErrors },
		"resource_timer_is_transient_error": func(s *Server) bool { return s.ResourceTimerIsTransientError },
	} {
		s := parse1(t, `[1, "`+name+`", "`+name+`"]`)
		if !field(s) {
			t.Errorf("feature %s is not set", name)
		}
		if got := s.features(); !slices.Equal(got, []string{name}) {
			t.Errorf("feature %s sets %v", name, got)
		}
	}
}

// parse1 parses a document with one server that has the given features.
func parse1(t *testing.T, features string) *Server {
	t.Helper()
	c, err := Parser{}.Parse("test", []byte(`{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "insecure"}], "server_features": `+features+`}]}`))
	kit.Must(t, err)
	return c.Servers[0]
}

// A27-BOOT-2, A47, A71: chains keep their order, and equal servers are one, regardless of their
// spelling, unused credentials and unknown features.
func TestServersAreShared(t *testing.T) {
	c, err := Parser{}.Parse("test", read(t, "testdata/good/fallback_and_duplicates.json"))
	kit.Must(t, err)
	if len(c.Servers) != 2 || c.Servers[0].URI != "one:1" || c.Servers[1].URI != "two:2" {
		t.Fatalf("Servers = %v, want one:1 and two:2", c.Servers)
	}
	a, b := c.Authorities["a"].Servers[0], c.Authorities["b"].Servers[0]
	if a != c.Servers[1] {
		t.Errorf("authority a: %v is not the top-level server", a)
	}
	if b == a || b.Key() == a.Key() {
		t.Errorf("authority b: %v is the same as %v", b, a)
	}
}

func TestTooLarge(t *testing.T) {
	data := []byte(`{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "insecure"}]}]}`)
	for _, size := range []int{maxSize, maxSize + 1} {
		text := append(slices.Clone(data), strings.Repeat(" ", size-len(data))...)
		_, err := Parser{}.Parse("test", text)
		if got, want := err != nil, size > maxSize; got != want {
			t.Errorf("%d bytes: error %v, want error: %v", size, err, want)
		}
	}
}

// Neither a broken nor a deep document may take the process down.
func TestDeep(t *testing.T) {
	for _, depth := range []int{1000, 9000, 100_000} {
		text := `{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "insecure"}]}], "node": {"metadata": {"a": ` +
			strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth) + `}}}`
		if c, err := (Parser{}.Parse("test", []byte(text))); err == nil && c.Node().GetMetadata() == nil {
			t.Errorf("depth %d: metadata is lost", depth)
		}
	}
}

// TestMutations changes valid and broken documents at random, as text and as trees. Parse must
// return either complete errors or a config that works and that is a fixed point.
func TestMutations(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 26))
	var corpus [2][][]byte
	for i, dir := range []string{"good", "broken"} {
		for _, name := range documents(t, dir) {
			corpus[i] = append(corpus[i], read(t, name))
		}
	}
	rounds := 10_000
	if testing.Short() {
		rounds = 2_000
	}
	good := 0
	for range rounds {
		texts := corpus[r.IntN(2)]
		text := slices.Clone(texts[r.IntN(len(texts))])
		if r.IntN(2) == 0 {
			text = mutateText(r, text)
		} else {
			text = mutateTree(r, text)
		}
		c, err := testParser().Parse("test", text)
		if err != nil {
			checkMistakes(t, "test", err)
			continue
		}
		good++
		checkUsable(t, text, c)
	}
	if good < rounds/10 {
		t.Errorf("only %d of %d mutated documents are valid, so the test sees little", good, rounds)
	}
}

// fullName matches xdstp names with an authority, a type and an id. A template that starts with
// the authority's prefix may yield other names.
var fullName = regexp.MustCompile(`^xdstp://[^/?#]*/[^/?#]+/[^?#]`)

func checkUsable(t *testing.T, text []byte, c *Config) {
	t.Helper()
	if len(c.Servers) == 0 || c.DefaultListenerTemplate == "" || c.String() == "" {
		t.Fatalf("%s: incomplete config %s", text, c)
	}
	chains := [][]*Server{c.Servers}
	for name, a := range c.Authorities {
		chains = append(chains, a.Servers)
		if name == "" {
			continue
		}
		listener, err := c.ListenerName(name, "a")
		if err != nil {
			t.Fatalf("%s: ListenerName(%q): %v", text, name, err)
		}
		want := a.Servers
		if !fullName.MatchString(listener) {
			want = c.Servers // it is of the old style
		}
		if servers, err := c.ServersFor(listener); err != nil || !slices.Equal(servers, want) {
			t.Fatalf("%s: ServersFor(%q) = %v, %v, want %v, of authority %q", text, listener, servers, err, want, name)
		}
	}
	byKey := make(map[string]*Server)
	for _, chain := range chains {
		if len(chain) == 0 {
			t.Fatalf("%s: a list of servers is empty", text)
		}
		for _, s := range chain {
			if known := byKey[s.Key()]; known != nil && known != s {
				t.Fatalf("%s: two servers with key %s", text, s.Key())
			}
			byKey[s.Key()] = s
			opts, stop, err := s.DialOptions()
			if err != nil || len(opts) == 0 {
				t.Fatalf("%s: DialOptions of %v: %v", text, s, err)
			}
			stop()
		}
	}
	if _, err := proto.Marshal(c.LRSNode()); err != nil {
		t.Fatalf("%s: node: %v", text, err)
	}
	again, err := testParser().Parse("test", canonical(c.document(false)))
	if err != nil || again.Fingerprint() != c.Fingerprint() {
		t.Fatalf("%s: is understood as %s, which gives %v, %v", text, c, again, err)
	}
}

// mutateText changes a few bytes.
func mutateText(r *rand.Rand, text []byte) []byte {
	for range 1 + r.IntN(3) {
		i := r.IntN(len(text) + 1)
		j := min(len(text), i+r.IntN(4))
		insert := []string{"", "{", "}", "[", "]", ",", ":", `"`, "\\", "null", "1e999", "\x00", "\xff", "a", "[]", "{}"}[r.IntN(16)]
		text = slices.Replace(text, i, j, []byte(insert)...)
	}
	return text
}

// mutateTree replaces, removes, renames or duplicates a node of the tree.
func mutateTree(r *rand.Rand, text []byte) []byte {
	root, err := decode("test", text)
	if err != nil {
		return text
	}
	return canonical(mutate(r, root.v))
}

func mutate(r *rand.Rand, v any) any {
	if r.IntN(8) == 0 {
		return []any{nil, true, json.Number("7"), "", "insecure", "%s", []any{}, map[string]any{}, []any{nil}, map[string]any{"type": "tls"}}[r.IntN(10)]
	}
	switch x := v.(type) {
	case []any:
		if len(x) == 0 {
			return x
		}
		i := r.IntN(len(x))
		switch r.IntN(4) {
		case 0:
			return slices.Delete(x, i, i+1)
		case 1:
			return append(x, x[i])
		}
		x[i] = mutate(r, x[i])
	case map[string]any:
		if len(x) == 0 {
			return x
		}
		names := make([]string, 0, len(x))
		for name := range x {
			names = append(names, name)
		}
		slices.Sort(names)
		name := names[r.IntN(len(names))]
		switch r.IntN(6) {
		case 0:
			delete(x, name)
		case 1:
			x[names[r.IntN(len(names))]] = x[name]
		default:
			x[name] = mutate(r, x[name])
		}
	}
	return v
}

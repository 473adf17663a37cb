// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
)

func mustParse(t testing.TB, text string) *Config {
	t.Helper()
	c, err := testParser().Parse("test", []byte(text))
	kit.Must(t, err)
	return c
}

// withNode is a valid document with the given node.
func withNode(node string) string {
	return strings.TrimSuffix(minimal("a"), "}") + `, "node": ` + node + "}"
}

// A27-BOOT-9, A27-BOOT-10, A27-NODE-2..4: the document's part is copied in
// either spelling, the client's part is the client's.
func TestNode(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{"s": "x", "n": 1.5, "b": true, "z": nil, "l": []any{1.0}, "o": map[string]any{"k": "v"}})
	kit.Must(t, err)
	const client = `"build_version": "v", "user_agent_name": "x", "userAgentName": "x", "user_agent_version": "x", "userAgentVersion": "x",
		"user_agent_build_version": {"version": {}}, "userAgentBuildVersion": 1, "client_features": ["x"], "clientFeatures": {}`
	for _, tt := range []struct {
		node string
		want *corev3.Node
	}{
		{`null`, &corev3.Node{}},
		{`{}`, &corev3.Node{}},
		{`{"locality": {}, "metadata": null, "id": null}`, &corev3.Node{}},
		{`{` + client + `}`, &corev3.Node{}},
		{`{"id": "i", "cluster": "c", "unknown": 1, ` + client + `}`, &corev3.Node{Id: "i", Cluster: "c"}},
		{`{"locality": {"region": "r", "zone": "z", "sub_zone": "s"}}`, &corev3.Node{Locality: &corev3.Locality{Region: "r", Zone: "z", SubZone: "s"}}},
		{`{"locality": {"subZone": "s", "unknown": 1}}`, &corev3.Node{Locality: &corev3.Locality{SubZone: "s"}}},
		{`{"metadata": {"s": "x", "n": 1.5, "b": true, "z": null, "l": [1], "o": {"k": "v"}}}`, &corev3.Node{Metadata: metadata}},
	} {
		c := mustParse(t, withNode(tt.node))
		tt.want.UserAgentName = "xdslb"
		tt.want.UserAgentVersionType = &corev3.Node_UserAgentVersion{UserAgentVersion: userAgentVersion}
		tt.want.ClientFeatures = []string{"envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw", "xds.config.supports-resource-ttl"}
		got := c.Node()
		if !proto.Equal(got, tt.want) {
			t.Errorf("node %s: got %v, want %v", tt.node, got, tt.want)
		}
		tt.want.ClientFeatures = append(tt.want.ClientFeatures, "envoy.lrs.supports_send_all_clusters")
		if got := c.LRSNode(); !proto.Equal(got, tt.want) {
			t.Errorf("node %s: got LRS node %v, want %v", tt.node, got, tt.want)
		}
		// The caller may modify it.
		got.Id, got.ClientFeatures[0] = "changed", "changed"
		if got.Metadata != nil {
			clear(got.Metadata.Fields)
		}
		if got := c.LRSNode(); !proto.Equal(got, tt.want) {
			t.Errorf("node %s: changing a node changed the next: %v", tt.node, got)
		}
	}
}

// D4: the fingerprint sees through spelling.
func TestFingerprintIgnoresSpelling(t *testing.T) {
	want := mustParse(t, `{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "tls"}]}], "node": {"id": "n", "locality": {"sub_zone": "s"}, "metadata": {"a": 1, "b": 2}}}`).Fingerprint()
	for _, same := range []string{
		`{"node":{"metadata":{"b":2,"a":1},"locality":{"subZone":"s"},"id":"n"},"xds_servers":[{"channel_creds":[{"type":"tls"}],"server_uri":"a"}]}`,
		`{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "magic"}, {"type": "tls", "config": {"refresh_interval": "600.0s", "x": 1}}, {"type": "insecure"}],
		   "call_creds": [{"type": "magic"}], "server_features": ["xds_v3", 1]}],
		  "node": {"id": "n", "locality": {"sub_zone": "s"}, "metadata": {"a": 1, "b": 2}, "user_agent_name": "x"},
		  "client_default_listener_resource_name_template": "%s", "server_listener_resource_name_template": "x", "authorities": {}, "certificate_providers": null}`,
	} {
		if got := mustParse(t, same).Fingerprint(); got != want {
			t.Errorf("fingerprint of %s differs", same)
		}
	}
}

// D4: configs that behave differently have different fingerprints, and so do
// the keys of servers, where the difference is in the server.
func TestFingerprintSeesDifferences(t *testing.T) {
	server := func(rest string) string { return `{"xds_servers": [{"server_uri": "a", ` + rest + `}]}` }
	files := func(f string) string { return server(`"channel_creds": [{"type": "tls", "config": {` + f + `}}]`) }
	jwt := func(path string) string {
		return server(`"channel_creds": [{"type": "tls"}], "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": "` + path + `"}}]`)
	}
	insecure := `"channel_creds": [{"type": "insecure"}]`
	servers := []string{
		minimal("a"), minimal("b"),
		files(``), files(`"ca_certificate_file": "x"`), files(`"refresh_interval": "1s"`), files(`"certificate_file": "x", "private_key_file": "y"`),
		jwt("x"), jwt("y"),
		server(`"channel_creds": [{"type": "google_default"}]`),
		server(`"channel_creds": [{"type": "google_default", "config": {"x": 1}}]`),
		server(insecure + `, "server_features": ["fail_on_data_errors"]`),
		server(insecure + `, "server_features": ["trusted_xds_server"]`),
		server(insecure + `, "server_features": ["ignore_resource_deletion"]`),
		server(insecure + `, "server_features": ["resource_timer_is_transient_error"]`),
		server(insecure + `, "server_features": ["resource_timer_is_transient_error", "trusted_xds_server"]`),
	}
	others := []string{
		withNode(`{"id": "x"}`), withNode(`{"cluster": "x"}`), withNode(`{"metadata": {"x": 1}}`), withNode(`{"metadata": {"x": 2}}`), withNode(`{"metadata": {"x": "1"}}`),
		withNode(`{"locality": {"region": "x"}}`), withNode(`{"locality": {"zone": "x"}}`), withNode(`{"locality": {"sub_zone": "x"}}`),
		withNode(`{}, "client_default_listener_resource_name_template": "x"`),
		withNode(`{}, "authorities": {"x": {}}`), withNode(`{}, "authorities": {"y": {}}`),
		withNode(`{}, "authorities": {"x": {"client_listener_resource_name_template": "xdstp://x/y"}}`),
		withNode(`{}, "authorities": {"x": {"xds_servers": [{"server_uri": "b", "channel_creds": [{"type": "insecure"}]}]}}`),
		withNode(`{}, "certificate_providers": {"x": {"plugin_name": "p"}}`), withNode(`{}, "certificate_providers": {"x": {"plugin_name": "q"}}`),
		withNode(`{}, "certificate_providers": {"x": {"plugin_name": "p", "config": 1}}`),
		`{"xds_servers": [{"server_uri": "a", ` + insecure + `}, {"server_uri": "b", ` + insecure + `}]}`,
		`{"xds_servers": [{"server_uri": "b", ` + insecure + `}, {"server_uri": "a", ` + insecure + `}]}`,
	}
	prints, keys := make(map[string]string), make(map[string]string)
	for i, text := range append(slices.Clone(servers), others...) {
		c := mustParse(t, text)
		if old, ok := prints[c.Fingerprint()]; ok {
			t.Errorf("same fingerprint:\n%s\n%s", old, text)
		}
		prints[c.Fingerprint()] = text
		if i >= len(servers) {
			continue
		}
		if old, ok := keys[c.Servers[0].Key()]; ok {
			t.Errorf("same key:\n%s\n%s", old, text)
		}
		keys[c.Servers[0].Key()] = text
	}
}

// String is for logs: unknown configuration might be secret.
func TestStringIsDiscreet(t *testing.T) {
	p := Parser{
		ChannelCreds: func(string) ChannelBuilder { return &fakeChannel{secure: true} },
		CallCreds:    func(string) CallBuilder { return &fakeCall{secure: true} },
	}
	c, err := p.Parse("test", []byte(`{
		"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "vault", "config": {"password": "hunter2"}}],
			"call_creds": [{"type": "basic", "config": "hunter2"}, {"type": "jwt_token_file", "config": {"jwt_token_file": "/var/run/token"}}],
			"server_features": ["fail_on_data_errors"]}],
		"certificate_providers": {"x": {"plugin_name": "vault", "config": {"password": "hunter2"}}}}`))
	kit.Must(t, err)
	for _, s := range []string{c.String(), c.Servers[0].String()} {
		if strings.Contains(s, "hunter2") {
			t.Errorf("%s tells a secret", s)
		}
	}
	if !strings.Contains(c.String(), "/var/run/token") {
		t.Errorf("%s does not name the token file", c)
	}
	if got, want := c.Servers[0].String(), "a (vault, basic, jwt_token_file, fail_on_data_errors)"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	if !strings.Contains(string(c.CertProviders["x"].Config), "hunter2") {
		t.Error("the configuration of the plugin is lost")
	}
}

func minimal(uri string) string {
	return `{"xds_servers": [{"server_uri": "` + uri + `", "channel_creds": [{"type": "insecure"}]}]}`
}

// A27-BOOT-1: the file wins over the text, and empty is the same as unset.
func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "xds.json")
	kit.Must(t, os.WriteFile(file, []byte(minimal("from-file")), 0o600))
	for _, tt := range []struct{ file, text, uri, source string }{
		{file, "", "from-file", "file " + file},
		{file, minimal("from-text"), "from-file", "file " + file},
		{file, "not JSON, and not looked at", "from-file", "file " + file},
		{"", minimal("from-text"), "from-text", "environment variable GRPC_XDS_BOOTSTRAP_CONFIG"},
	} {
		t.Setenv(envFile, tt.file)
		t.Setenv(envText, tt.text)
		c, err := Parser{}.Load()
		if err != nil {
			t.Errorf("Load with %+v: %v", tt, err)
			continue
		}
		if c.Servers[0].URI != tt.uri || c.Source != tt.source {
			t.Errorf("Load with %+v: server %s from %s", tt, c.Servers[0].URI, c.Source)
		}
	}
}

// A27-BOOT-11: a document that is absent or not found is an error that contains the searched
// places.
func TestLoadFails(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.json")
	kit.Must(t, os.WriteFile(empty, nil, 0o600))
	for _, tt := range []struct {
		name, file, text string
		is               error
		want             []string
	}{
		{"unset", "", "", nil, []string{"environment", envFile, envText, "set"}},
		{"missing", filepath.Join(dir, "no.json"), minimal("a"), fs.ErrNotExist, []string{"file " + dir, "cannot be read", envFile}},
		{"directory", dir, "", nil, []string{"file " + dir, "cannot be read"}},
		{"empty", empty, minimal("a"), nil, []string{"file " + empty, "is empty", "xds_servers"}},
		{"endless", "/dev/zero", "", nil, []string{"file /dev/zero", "larger than"}},
		{"text as file", minimal("a"), "", nil, []string{"environment variable GRPC_XDS_BOOTSTRAP:", "contains JSON", "move the text to " + envText}},
		{"file as text", "", "/etc/xds.json", nil, []string{"environment variable " + envText, "line 1, column 1", "set " + envFile + " to its path"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := os.Stat(tt.file); tt.name == "endless" && err != nil {
				t.Skip("no such device here")
			}
			t.Setenv(envFile, tt.file)
			t.Setenv(envText, tt.text)
			c, err := Parser{}.Load()
			if err == nil {
				t.Fatalf("Load succeeded: %v", c)
			}
			var e *parseError
			ok := errors.As(err, &e)
			if !ok || e.Source == "" || e.Problem == "" || e.Fix == "" {
				t.Errorf("incomplete: %#v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %q is not %v", err, tt.is)
			}
		})
	}
}

// A Config has no goroutines, and channels closed with their credentials
// stopped leave none behind.
func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// TestFallback: the source is the last server of every chain, and its name depends on the document.
func TestFallback(t *testing.T) {
	const insecure = `, "channel_creds": [{"type": "insecure"}]}`
	parse := func(p Parser, server string) *Config {
		t.Helper()
		c, err := p.Parse("test", []byte(`{"xds_servers": [{"server_uri": "`+server+`"`+insecure+`],
			"authorities": {"a": {}, "b": {"xds_servers": [{"server_uri": "other:1"`+insecure+`]}}}`))
		kit.Must(t, err)
		return c
	}
	with := Parser{Fallback: "remembered:/dir/program-"}
	plain, c := parse(Parser{}, "cp:1"), parse(with, "cp:1")
	want := "remembered:/dir/program-" + plain.Fingerprint()
	for name, chain := range map[string][]*Server{"default": c.Servers, "a": c.Authorities["a"].Servers, "b": c.Authorities["b"].Servers} {
		if len(chain) != 2 || chain[1].URI != want || !chain[1].Local() {
			t.Errorf("chain of %s: %v, want two with %s", name, chain, want)
		}
	}
	if c.Fingerprint() == plain.Fingerprint() || parse(with, "cp:2").Servers[1].URI == want || strings.Contains(plain.String(), "remembered") {
		t.Error("a document shares a file, or a client, with another one")
	}
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"encoding/json"
	"regexp"
)

// serverURI is the control plane of Bootstrap's documents. It appears in errors.
const serverURI = "passthrough:///file"

// Bootstrap returns the bootstrap document of a client that reads the resources: the given
// document, which must be valid, with the control planes replaced. If document is nil, the
// result has the authorities and the certificate providers that the resources name.
func (r *Resources) Bootstrap(document []byte) []byte {
	var doc struct {
		Servers     []map[string]any          `json:"xds_servers"`
		Authorities map[string]map[string]any `json:"authorities,omitempty"`
		Providers   map[string]any            `json:"certificate_providers,omitempty"`
		Template    any                       `json:"client_default_listener_resource_name_template,omitempty"`
		Node        any                       `json:"node"`
	}
	if document != nil {
		_ = json.Unmarshal(document, &doc) // it is valid
	} else {
		doc.Node = map[string]any{"id": "none"}
		doc.Authorities, doc.Providers = map[string]map[string]any{}, map[string]any{}
		for _, name := range r.names(authority) {
			doc.Authorities[name] = nil
		}
		for _, name := range r.names(instance) {
			doc.Providers[name] = map[string]any{"plugin_name": "any"}
		}
	}
	server := map[string]any{"server_uri": serverURI, "channel_creds": []any{map[string]any{"type": "insecure"}}}
	if len(doc.Servers) > 0 && doc.Servers[0]["server_features"] != nil {
		server["server_features"] = doc.Servers[0]["server_features"]
	}
	doc.Servers = []map[string]any{server}
	for name, a := range doc.Authorities {
		if a == nil {
			doc.Authorities[name] = map[string]any{}
		}
		delete(a, "xds_servers")
	}
	text, _ := json.Marshal(doc) // strings and decoded JSON always encode
	return text
}

var (
	authority = regexp.MustCompile(`"xdstp://([^/"\\]*)/`)
	instance  = regexp.MustCompile(`"instance_?[nN]ame"\s*:\s*"([^"\\]*)"`)
)

// names returns the matches of an expression in the documents.
func (r *Resources) names(e *regexp.Regexp) (list []string) {
	for _, m := range e.FindAllSubmatch(r.text, -1) {
		list = append(list, string(m[1]))
	}
	return list
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// portKey identifies a port of a service.
type portKey struct {
	namespace, service string
	port               string // name or number
}

func (k portKey) String() string { return k.service + "." + k.namespace + ":" + k.port }

// parseName parses the name of a resource: SERVICE.NAMESPACE:PORT, optionally with .svc or
// .svc.DOMAIN after the namespace, as in DNS. The last part of an xdstp name is parsed.
func parseName(resource string) (portKey, error) {
	id := resource
	if rest, ok := strings.CutPrefix(resource, xdstp); ok {
		parts := strings.SplitN(rest, "/", 3)
		if len(parts) < 3 {
			return portKey{}, fmt.Errorf("name %q: must be xdstp://AUTHORITY/TYPE/SERVICE.NAMESPACE:PORT", resource)
		}
		id, _, _ = strings.Cut(parts[2], "?")
	}
	host, port, ok := strings.Cut(id, ":")
	labels := strings.Split(host, ".")
	if !ok || port == "" || len(labels) < 2 || labels[0] == "" || labels[1] == "" || len(labels) > 2 && labels[2] != "svc" {
		return portKey{}, fmt.Errorf("name %q: must be SERVICE.NAMESPACE:PORT, with the name or number of a port", resource)
	}
	if strings.ContainsAny(id, "/?#% ") || !utf8.ValidString(resource) {
		return portKey{}, fmt.Errorf("name %q: must be valid UTF-8 without '/', '?', '#', '%%' and spaces", resource)
	}
	return portKey{namespace: labels[1], service: labels[0], port: port}, nil
}

const xdstp = "xdstp://"

// sibling returns the name of a resource of another type for the same port. An xdstp name
// includes the type.
func sibling(resource, typeURL string) string {
	rest, ok := strings.CutPrefix(resource, xdstp)
	if !ok {
		return resource
	}
	authority, rest, _ := strings.Cut(rest, "/")
	_, id, _ := strings.Cut(rest, "/")
	return xdstp + authority + "/" + strings.TrimPrefix(typeURL, typePrefix) + "/" + id
}

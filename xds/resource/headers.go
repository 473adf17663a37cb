// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/base64"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xdslb/xdslb/picker"
)

// Limits of header mutations, which are Envoy's.
const (
	maxHeaders    = 1000 // of a list
	maxHeaderText = 16384
)

// headerActions are the actions of HeaderValueOption.append_action.
var headerActions = map[corev3.HeaderValueOption_HeaderAppendAction]picker.HeaderAction{
	corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:    picker.AppendHeader,
	corev3.HeaderValueOption_ADD_IF_ABSENT:              picker.AddHeaderIfAbsent,
	corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD: picker.SetHeader,
	corev3.HeaderValueOption_OVERWRITE_IF_EXISTS:        picker.ReplaceHeaderIfPresent,
}

// A headed message has header mutations.
type headed interface {
	GetRequestHeadersToAdd() []*corev3.HeaderValueOption
	GetRequestHeadersToRemove() []string
}

// headerMutations converts the header mutations of a message, or returns nil if it has none. A name
// or value that Envoy rejects is an error. Headers that gRPC cannot send, or sets itself, are
// ignored and reported. p is the path of the message.
func (d *decoder) headerMutations(m headed, p *path) *picker.HeaderMutations {
	adds, removes := m.GetRequestHeadersToAdd(), m.GetRequestHeadersToRemove()
	if len(adds)+len(removes) == 0 {
		return nil
	}
	h := new(picker.HeaderMutations)
	add, remove := p.dot("request_headers_to_add"), p.dot("request_headers_to_remove")
	switch {
	case len(adds) > maxHeaders:
		add.refuse(len(adds), "must have at most 1000 headers")
		return nil
	case len(removes) > maxHeaders:
		remove.refuse(len(removes), "must have at most 1000 headers")
		return nil
	}
	for i, name := range removes {
		if name, ok := d.headerName(name, "request_headers_to_remove", remove.at(i)); ok && !slices.Contains(h.Remove, name) {
			h.Remove = append(h.Remove, name)
		}
	}
	for i, option := range adds {
		if mutation, ok := d.headerMutation(option, add.at(i)); ok {
			h.Add = append(h.Add, mutation)
		}
	}
	if len(h.Remove)+len(h.Add) == 0 {
		return nil
	}
	return h
}

// headerMutation converts an entry of request_headers_to_add. It returns false if the entry has no
// effect.
func (d *decoder) headerMutation(m *corev3.HeaderValueOption, p *path) (h picker.HeaderMutation, ok bool) {
	action, known := headerActions[m.GetAppendAction()]
	switch {
	case !known:
		p.dot("append_action").refuse(m.GetAppendAction(), "must be a known action")
	case m.GetAppend() != nil && m.GetAppendAction() != 0: //nolint:staticcheck // deprecated, and still sent
		p.dot("append").fail("must not be set together with append_action")
	case m.GetAppend() != nil && !m.GetAppend().GetValue(): //nolint:staticcheck // deprecated, and still sent
		action = picker.SetHeader
	}
	p = p.dot("header")
	const list = "request_headers_to_add"
	name, ok := d.headerName(m.GetHeader().GetKey(), list, p.dot("key"))
	value, reason := m.GetHeader().GetValue(), ""
	switch {
	case len(value) > maxHeaderText:
		p.dot("value").refuse(len(value), "must have at most 16384 bytes")
		return h, false
	case strings.ContainsAny(value, "\x00\r\n"):
		p.dot("value").refuse(value, "must not contain line breaks or NUL")
		return h, false
	case !ok:
		return h, false
	case len(m.GetHeader().GetRawValue()) > 0:
		reason = "with raw_value"
	case strings.Contains(strings.ReplaceAll(value, "%%", ""), "%"):
		reason = "with a command of Envoy in its value"
	case !isPrintable(value):
		reason = "whose value is not printable ASCII"
	}
	if reason != "" {
		d.ignore(list + " " + quote(name) + " " + reason)
		return h, false
	}
	value = strings.ReplaceAll(value, "%%", "%")
	if value == "" && !m.GetKeepEmptyValue() {
		return h, false
	}
	if strings.HasSuffix(name, "-bin") {
		binary, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
		if err != nil {
			p.dot("value").refuse(value, "must be base64, since the header is binary")
		}
		value = string(binary)
	}
	return picker.HeaderMutation{Name: name, Value: value, Action: action}, true
}

// headerName returns the name of a header in lower case, and whether it can be changed.
func (d *decoder) headerName(name, list string, p *path) (lowered string, ok bool) {
	lowered = lower(p.nonEmpty(name))
	switch {
	case name == "":
		return "", false
	case len(name) > maxHeaderText:
		p.refuse(len(name), "must have at most 16384 bytes")
		return "", false
	case strings.HasPrefix(name, ":") || lowered == "host":
		p.refuse(name, "must not be the host or begin with a colon")
		return "", false
	case strings.ContainsFunc(name, func(r rune) bool { return !isToken(r) }):
		p.refuse(name, "must be the name of a header")
		return "", false
	case isReserved(lowered):
		d.ignore(list + " " + quote(lowered) + ", which gRPC sets")
		return "", false
	case strings.ContainsFunc(lowered, func(r rune) bool { return !isMetadataKey(r) }):
		d.ignore(list + " " + quote(lowered) + ", a name that gRPC cannot send")
		return "", false
	}
	return lowered, true
}

// isReserved reports whether gRPC or HTTP/2 sets or forbids a header.
func isReserved(name string) bool {
	switch name {
	case "content-type", "content-length", "user-agent", "te", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return true
	}
	return strings.HasPrefix(name, "grpc-")
}

// isToken reports whether HTTP allows a character in names of headers.
func isToken(r rune) bool {
	return 'A' <= r && r <= 'Z' || isMetadataKey(r) || strings.ContainsRune("!#$%&'*+^`|~", r)
}

// isMetadataKey reports whether gRPC allows a character in names of headers.
func isMetadataKey(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.'
}

// isPrintable reports whether gRPC allows a value of a header that is not binary.
func isPrintable(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}

// headerLevels are the header mutations of a RouteConfiguration and a virtual host, which their
// routes share.
type headerLevels struct {
	global, host *picker.HeaderMutations
	// specificWins is most_specific_header_mutations_wins: the route's mutations are evaluated last
	// rather than first.
	specificWins bool
	shared       []*picker.HeaderMutations // of routes without mutations
}

// share sets the list of routes without mutations.
func (l *headerLevels) share() { l.shared = l.order(nil) }

// of returns the mutations of a route, in the order of evaluation. Those of a weighted cluster are
// evaluated before them.
func (l *headerLevels) of(route *picker.HeaderMutations) []*picker.HeaderMutations {
	if route == nil {
		return l.shared
	}
	return l.order(route)
}

func (l *headerLevels) order(route *picker.HeaderMutations) (list []*picker.HeaderMutations) {
	for _, m := range []*picker.HeaderMutations{route, l.host, l.global} {
		if m != nil {
			list = append(list, m)
		}
	}
	if l.specificWins {
		slices.Reverse(list)
	}
	return list
}

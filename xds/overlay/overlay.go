// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/proto"
)

// Overlay is a validated list of patches. It is immutable.
type Overlay struct{ patches []*patch }

// kind is the kind of message that a patch applies to.
type kind uint8

const (
	listener kind = iota
	routeConfiguration
	route
	cluster
	endpoints
)

// kinds has the name of each kind in documents, and an empty message of it.
var kinds = [...]struct {
	name    string
	message proto.Message
}{
	listener:           {"listener", (*listenerv3.Listener)(nil)},
	routeConfiguration: {"route_configuration", (*routev3.RouteConfiguration)(nil)},
	route:              {"route", (*routev3.Route)(nil)},
	cluster:            {"cluster", (*clusterv3.Cluster)(nil)},
	endpoints:          {"endpoints", (*endpointv3.ClusterLoadAssignment)(nil)},
}

// Ref identifies a patch.
type Ref struct {
	Source string // of the document, as in Parse
	Index  int    // in the document

	sum xxh3.Uint128 // of everything that decides about the result of the patch
}

// String returns the source and the path of the patch in it.
func (r Ref) String() string { return fmt.Sprintf("%s: patches[%d]", r.Source, r.Index) }

// patch is one entry of "patches".
type patch struct {
	ref           Ref
	position      int // in the overlay
	kind          kind
	name, target  glob
	merge         json.RawMessage
	fields        []string // of merge
	whenUnset     bool
	allowSecurity bool
}

// Parse returns the overlay in a JSON document. The source, such as "file /etc/overlay.json", is
// used in messages only. Errors name the source, the patch by its index, the path within it and the
// rule that is violated; the document is then rejected as a whole.
func Parse(source string, document []byte) (*Overlay, error) {
	var in struct {
		Patches []json.RawMessage `json:"patches"`
	}
	err := decodeStrict(document, &in)
	if err == nil {
		err = checkKeys(json.NewDecoder(bytes.NewReader(document)))
	}
	if err != nil {
		return nil, fmt.Errorf("xdslb: overlay: %s: %w", source, err)
	}
	o := &Overlay{}
	for i, raw := range in.Patches {
		p, err := parsePatch(raw)
		if err != nil {
			return nil, fmt.Errorf("xdslb: overlay: %s: patches[%d]%w", source, i, err)
		}
		p.position = i
		p.ref = Ref{Source: source, Index: i, sum: xxh3.HashString128(fmt.Sprintf("%d %t %t %q %s", p.kind, p.whenUnset, p.allowSecurity, p.name, p.merge))}
		o.patches = append(o.patches, p)
	}
	return o, nil
}

// join returns the overlay with the patches of a, which may be nil, before those of b.
func join(a, b *Overlay) *Overlay {
	if a == nil {
		return b
	}
	o := &Overlay{}
	for _, p := range slices.Concat(a.patches, b.patches) {
		moved := *p
		moved.position = len(o.patches)
		o.patches = append(o.patches, &moved)
	}
	return o
}

// parsePatch returns a validated patch. Errors begin with the path within the patch.
func parsePatch(raw json.RawMessage) (*patch, error) {
	var in struct {
		Resource      string          `json:"resource"`
		Name          *string         `json:"name"`
		Target        *string         `json:"target"`
		Merge         json.RawMessage `json:"merge"`
		WhenUnset     bool            `json:"when_unset"`
		AllowSecurity bool            `json:"allow_security_changes"`
	}
	if err := decodeStrict(raw, &in); err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	p := &patch{target: "*", merge: in.Merge, whenUnset: in.WhenUnset, allowSecurity: in.AllowSecurity}
	i := slices.IndexFunc(kinds[:], func(k struct {
		name    string
		message proto.Message
	}) bool {
		return k.name == in.Resource
	})
	if i < 0 {
		return nil, fmt.Errorf(`.resource: %q: must be "listener", "route_configuration", "route", "cluster" or "endpoints"`, in.Resource)
	}
	p.kind = kind(i)
	if in.Name == nil || *in.Name == "" {
		return nil, errors.New(`.name: must be set; "*" matches all names`)
	}
	p.name = glob(*in.Name)
	if in.Target != nil {
		p.target = glob(*in.Target)
	}
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf(".merge%w", err)
	}
	return p, nil
}

// validate checks the merge by applying it to an empty message.
func (p *patch) validate() error {
	if !isObject(p.merge) {
		return errors.New(": must be a JSON object")
	}
	m := kinds[p.kind].message.ProtoReflect().New()
	fields, err := objectFields(m.Descriptor(), p.merge)
	if err != nil {
		return err
	}
	if len(fields) == 0 {
		return errors.New(": must have at least one field")
	}
	for _, f := range fields {
		p.fields = append(p.fields, string(f.fd.Name()))
		switch name := f.fd.Name(); {
		case name == "name", name == "cluster_name":
			return fmt.Errorf(".%s: must not be set: names cannot be patched", name)
		case p.kind == endpoints && name != "policy":
			return fmt.Errorf(".%s: only the policy of endpoints can be patched", name)
		case p.kind == cluster && name == "transport_socket" && isNull(f.raw) && !p.allowSecurity:
			return fmt.Errorf(".%s: removing it requires \"allow_security_changes\": true", name)
		}
	}
	return (&merger{lenient: true}).message(m, p.merge, "")
}

// Patch describes a patch.
type Patch struct {
	Ref
	// Resource, Name and Target are as in the document; Target is "*" if it is left out.
	Resource, Name, Target string
	// Fields are the fields of the resource that the patch sets, in their proto names.
	Fields []string
}

// Patches returns a description of each patch, in order. A nil Overlay has none.
func (o *Overlay) Patches() []Patch {
	if o == nil {
		return nil
	}
	list := make([]Patch, len(o.patches))
	for i, p := range o.patches {
		list[i] = Patch{p.ref, kinds[p.kind].name, string(p.name), string(p.target), p.fields}
	}
	return list
}

// Selection is the part of an overlay that applies to a channel target.
type Selection struct {
	byKind [len(kinds)][]*patch
}

// Select returns the patches for a channel target, or nil if there are none. Scheme xdslb is
// equivalent to xds. A nil Overlay has no patches.
func (o *Overlay) Select(target string) *Selection {
	if o == nil {
		return nil
	}
	var s *Selection
	for _, p := range o.patches {
		if !glob(plainScheme(string(p.target))).match(plainScheme(target)) {
			continue
		}
		if s == nil {
			s = &Selection{}
		}
		s.byKind[p.kind] = append(s.byKind[p.kind], p)
	}
	return s
}

func plainScheme(target string) string {
	if rest, ok := strings.CutPrefix(target, "xdslb:"); ok {
		return "xds:" + rest
	}
	return target
}

// decodeStrict is json.Unmarshal of a document with known fields and nothing after it.
func decodeStrict(document []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(document))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("no JSON value")
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("invalid JSON: the document is incomplete")
		}
		if e := (*json.SyntaxError)(nil); errors.As(err, &e) {
			return fmt.Errorf("invalid JSON at byte %d: %w", e.Offset, err)
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("invalid JSON at byte %d: data after the document", d.InputOffset())
	}
	return nil
}

// maxDepth bounds how deep JSON values are nested, since each level of a patch is read by itself.
const maxDepth = 64

// checkKeys returns an error if an object in the next JSON value has a key twice, or the value is nested
// too deeply. The value is valid JSON. It is linear.
func checkKeys(d *json.Decoder) error {
	at, problem := misplaced(d, 0)
	if problem == "" {
		return nil
	}
	slices.Reverse(at)
	return fmt.Errorf("%s: %s", strings.TrimPrefix(strings.Join(at, ""), "."), problem)
}

// misplaced returns the first problem in the next JSON value, and the steps to it, the last one first.
func misplaced(d *json.Decoder, depth int) (at []string, problem string) {
	token, err := d.Token()
	if err != nil || token != json.Delim('{') && token != json.Delim('[') {
		return nil, ""
	}
	if depth == maxDepth {
		return nil, fmt.Sprintf("must be nested at most %d levels deep", maxDepth)
	}
	seen := map[string]bool{}
	for i := 0; d.More(); i++ {
		step := ""
		if token == json.Delim('{') {
			key, _ := d.Token()
			name, _ := key.(string)
			if step = "." + name; seen[step] {
				return []string{step}, "set twice"
			}
			seen[step] = true
		}
		if at, problem = misplaced(d, depth+1); problem != "" {
			if step == "" {
				step = fmt.Sprintf("[%d]", i)
			}
			return append(at, step), problem
		}
	}
	_, _ = d.Token()
	return nil, ""
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/resource"
)

// merger applies JSON merge patches (RFC 7386) to messages. The result is the message whose JSON
// form is that of the original with the patch applied, except that setting a field of a oneof
// clears the other fields of that oneof, and that a patch with another "@type" replaces an Any.
type merger struct {
	// lenient skips patches of an Any without "@type", whose type is known only from the
	// resource.
	lenient bool
}

// field is a field of a JSON object.
type field struct {
	fd  protoreflect.FieldDescriptor
	raw json.RawMessage
}

// objectFields returns the fields of a JSON object that is a patch of a message, in the order of
// the message's declaration. Errors begin with the path within the object.
func objectFields(md protoreflect.MessageDescriptor, patch json.RawMessage) ([]field, error) {
	object, err := jsonObject(patch)
	if err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	fields := make([]field, 0, len(object))
	for key, raw := range object {
		fd := md.Fields().ByName(protoreflect.Name(key))
		if fd == nil {
			fd = md.Fields().ByJSONName(key)
		}
		if fd == nil {
			return nil, fmt.Errorf(".%s: %s has no such field", key, md.FullName())
		}
		fields = append(fields, field{fd, raw})
	}
	slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.fd.Index(), b.fd.Index()) })
	var set protoreflect.FieldDescriptor // the latest field of a oneof that is set
	for i, f := range fields {
		if i > 0 && f.fd == fields[i-1].fd {
			return nil, fmt.Errorf(".%s: set twice", f.fd.Name())
		}
		if oneof := f.fd.ContainingOneof(); oneof == nil || oneof.IsSynthetic() || isNull(f.raw) {
			continue
		} else if set != nil && set.ContainingOneof() == oneof {
			return nil, fmt.Errorf(".%s: at most one field of oneof %s can be set, and %s is set, too", f.fd.Name(), oneof.Name(), set.Name())
		}
		set = f.fd
	}
	return fields, nil
}

// message applies a patch, which is a JSON object, to m. Errors begin with the path.
func (g *merger) message(m protoreflect.Message, patch json.RawMessage, path string) error {
	fields, err := objectFields(m.Descriptor(), patch)
	if err != nil {
		return fmt.Errorf("%s%w", path, err)
	}
	// Fields that are removed come first: they may belong to the oneof of one that is set.
	for _, f := range fields {
		if isNull(f.raw) {
			m.Clear(f.fd)
		}
	}
	for _, f := range fields {
		if !isNull(f.raw) {
			if err := g.field(m, f.fd, f.raw, path+"."+string(f.fd.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// field applies a patch other than null to a field of m.
func (g *merger) field(m protoreflect.Message, fd protoreflect.FieldDescriptor, patch json.RawMessage, path string) error {
	switch {
	case fd.IsMap() && fd.MapKey().Kind() == protoreflect.StringKind:
		return g.mapField(m, fd, patch, path)
	case fd.IsMap() || fd.IsList() || fd.Message() == nil:
		return replace(m, fd, patch, path)
	}
	return g.value(m.Mutable(fd).Message(), patch, path)
}

// mapField applies a patch to a map with string keys, by key.
func (g *merger) mapField(m protoreflect.Message, fd protoreflect.FieldDescriptor, patch json.RawMessage, path string) error {
	object, err := jsonObject(patch)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for key, raw := range object {
		at := fmt.Sprintf("%s[%q]", path, key)
		k := protoreflect.ValueOfString(key).MapKey()
		switch {
		case isNull(raw):
			m.Mutable(fd).Map().Clear(k)
		case fd.MapValue().Message() != nil:
			if err := g.value(m.Mutable(fd).Map().Mutable(k).Message(), raw, at); err != nil {
				return err
			}
		default:
			one := m.New()
			quoted, _ := json.Marshal(key)
			if err := replace(one, fd, slices.Concat([]byte{'{'}, quoted, []byte{':'}, raw, []byte{'}'}), at); err != nil {
				return err
			}
			m.Mutable(fd).Map().Set(k, one.Get(fd).Map().Get(k))
		}
	}
	return nil
}

// value applies a patch other than null to the message m, which is the value of a field or of a
// key of a map.
func (g *merger) value(m protoreflect.Message, patch json.RawMessage, path string) error {
	md := m.Descriptor()
	switch {
	case md.FullName() == "google.protobuf.Any":
		return g.any(m.Interface(), patch, path)
	case isObject(patch) && !hasOwnJSON(md):
		return g.message(m, patch, path)
	case isObject(patch) && isDynamic(md):
		merged, err := mergeDynamic(m.Interface(), patch)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		patch = merged
	}
	if err := protojson.Unmarshal(patch, m.Interface()); err != nil {
		return fmt.Errorf("%s: %w", path, plainError(err))
	}
	return nil
}

// any applies a patch to an Any.
func (g *merger) any(m proto.Message, patch json.RawMessage, path string) error {
	value, ok := m.(*anypb.Any)
	object, err := jsonObject(patch)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !ok {
		return fmt.Errorf("%s: unsupported representation of an Any", path)
	}
	url := value.GetTypeUrl()
	if raw, ok := object["@type"]; ok {
		if err := json.Unmarshal(raw, &url); err != nil || url == "" {
			return fmt.Errorf("%s.@type: must be a type URL", path)
		}
	} else if url == "" {
		if g.lenient {
			return nil
		}
		return fmt.Errorf("%s: must have an \"@type\", since the resource has no value here", path)
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		return fmt.Errorf("%s.@type: unknown type %q", path, url)
	}
	inner := mt.New()
	if hasOwnJSON(mt.Descriptor()) {
		raw, ok := object["value"]
		if !ok || len(object) > 2 {
			return fmt.Errorf("%s: must have an \"@type\" and a \"value\"", path)
		}
		if err := protojson.Unmarshal(raw, inner.Interface()); err != nil {
			return fmt.Errorf("%s.value: %w", path, plainError(err))
		}
	} else {
		if value.GetTypeUrl() == url {
			if err := resource.Unmarshal(value.GetValue(), inner.Interface()); err != nil {
				return fmt.Errorf("%s: the current value %w", path, err)
			}
		}
		delete(object, "@type")
		rest, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := g.message(inner, rest, path); err != nil {
			return err
		}
	}
	b, err := marshal(inner.Interface())
	if err != nil {
		return fmt.Errorf("%s: %w", path, plainError(err))
	}
	value.TypeUrl, value.Value = url, b
	return nil
}

// replace sets a field of m to a JSON value.
func replace(m protoreflect.Message, fd protoreflect.FieldDescriptor, value json.RawMessage, path string) error {
	one := m.New()
	text := slices.Concat([]byte(`{"`), []byte(fd.Name()), []byte(`":`), value, []byte{'}'})
	if err := protojson.Unmarshal(text, one.Interface()); err != nil {
		return fmt.Errorf("%s: %w", path, plainError(err))
	}
	if one.Has(fd) {
		m.Set(fd, one.Get(fd))
	} else {
		m.Clear(fd) // an empty list, or the zero value of a field without presence
	}
	return nil
}

// isDynamic reports whether the JSON form of a message is any object.
func isDynamic(md protoreflect.MessageDescriptor) bool {
	return md.FullName() == "google.protobuf.Struct" || md.FullName() == "google.protobuf.Value"
}

// hasOwnJSON reports whether the JSON form of a message is not an object of its fields.
func hasOwnJSON(md protoreflect.MessageDescriptor) bool {
	switch md.FullName() {
	case "google.protobuf.Any", "google.protobuf.Duration", "google.protobuf.Timestamp", "google.protobuf.FieldMask",
		"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue", "google.protobuf.Empty",
		"google.protobuf.BoolValue", "google.protobuf.StringValue", "google.protobuf.BytesValue",
		"google.protobuf.FloatValue", "google.protobuf.DoubleValue",
		"google.protobuf.Int32Value", "google.protobuf.Int64Value", "google.protobuf.UInt32Value", "google.protobuf.UInt64Value":
		return true
	}
	return false
}

// mergeDynamic returns the JSON form of a Struct or Value after a patch, which is a JSON object.
func mergeDynamic(m proto.Message, patch json.RawMessage) (json.RawMessage, error) {
	var current any
	if b, err := protojson.Marshal(m); err == nil { // a Value that is not set has no JSON form
		if err := json.Unmarshal(b, &current); err != nil {
			return nil, err
		}
	}
	var p any
	if err := json.Unmarshal(patch, &p); err != nil {
		return nil, err
	}
	return json.Marshal(mergeJSON(current, p))
}

// mergeJSON is the algorithm of RFC 7386, section 2. It may modify target.
func mergeJSON(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for key, value := range p {
		if value == nil {
			delete(t, key)
		} else {
			t[key] = mergeJSON(t[key], value)
		}
	}
	return t
}

func jsonObject(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if !isObject(raw) {
		return nil, errors.New("must be a JSON object")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	return object, nil
}

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{'
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// position is the position in a text that errors of protojson begin with.
var position = regexp.MustCompile(`^(syntax error )?\((line \d+:\d+)?\): `)

// plainError removes package proto's prefix and position from an error: these concern a text that
// was made here.
func plainError(err error) error {
	text := strings.TrimPrefix(err.Error(), "proto:")
	return errors.New(position.ReplaceAllString(strings.TrimLeft(text, " \u00a0"), ""))
}

// marshal is deterministic, so that the same resource and patches result in the same bytes.
func marshal(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// each calls f with the fields of an encoded message, up to the first malformed one: number, tag with
// content, and content. The number is 0 unless the field has a length, as strings and messages have.
func each(value []byte, f func(number protowire.Number, field, content []byte)) {
	for len(value) > 0 {
		number, typ, tag := protowire.ConsumeTag(value)
		if tag < 0 {
			return
		}
		n := protowire.ConsumeFieldValue(number, typ, value[tag:])
		if n < 0 {
			return
		}
		field, content := value[:tag+n], []byte(nil)
		if typ == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(value[tag:])
		} else {
			number = 0
		}
		f(number, field, content)
		value = value[tag+n:]
	}
}

// fields returns the fields with some numbers, as a message of their own.
func fields(value []byte, numbers ...protowire.Number) []byte {
	kept := []byte{}
	each(value, func(number protowire.Number, field, _ []byte) {
		if slices.Contains(numbers, number) {
			kept = append(kept, field...)
		}
	})
	return kept
}

// fieldsExcept returns the fields without those of a number.
func fieldsExcept(value []byte, except protowire.Number) []byte {
	kept := []byte{}
	each(value, func(number protowire.Number, field, _ []byte) {
		if number != except {
			kept = append(kept, field...)
		}
	})
	return kept
}

// text returns a field that is a string.
func text(value []byte, number protowire.Number) (s string) {
	each(value, func(n protowire.Number, _, content []byte) {
		if n == number {
			s = string(content) // the last one is in force
		}
	})
	return s
}

// rewrite returns a message with another content of the fields with a number, and whether f reported a
// change of any.
func rewrite(value []byte, number protowire.Number, f func(content []byte) ([]byte, bool)) (_ []byte, changed bool) {
	var out []byte
	each(value, func(n protowire.Number, field, content []byte) {
		if n == number {
			if replaced, ok := f(content); ok {
				out, changed = appendField(out, number, replaced), true
				return
			}
		}
		out = append(out, field...)
	})
	if !changed {
		return value, false
	}
	return out, true
}

func appendField(message []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), content)
}

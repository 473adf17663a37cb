// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
)

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

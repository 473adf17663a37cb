// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// TestConditionStatus: conditions on headers read as they match.
func TestConditionStatus(t *testing.T) {
	is := picker.StringMatch{Kind: picker.MatchExact, Value: "v"}
	for _, row := range []struct {
		match picker.HeaderMatch
		want  string
	}{
		{picker.HeaderMatch{Kind: picker.HeaderString, String: is}, `is "v"`},
		{picker.HeaderMatch{Kind: picker.HeaderString, String: is, Invert: true}, `is present, and not: is "v"`},
		{picker.HeaderMatch{Kind: picker.HeaderRange, Start: 1, End: 5}, "is a number from 1 to 4"},
		{picker.HeaderMatch{Kind: picker.HeaderPresent, Present: true}, "is present"},
		{picker.HeaderMatch{Kind: picker.HeaderPresent, Present: true, Invert: true}, "is absent"},
		{picker.HeaderMatch{Kind: picker.HeaderPresent}, "is absent"},
	} {
		row.match.Name = "k"
		if got, want := conditionStatus(&row.match), fmt.Sprintf("header %q %s", "k", row.want); got != want {
			t.Errorf("%+v reads %q, want %q", row.match, got, want)
		}
	}
}

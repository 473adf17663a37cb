// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package persistent

import "reflect"

// SameSlice reports whether a and b are the same slice, not merely equal, in O(1). Anything
// derived from one holds for the other.
func SameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// SameMap reports whether a and b are the same map, as SameSlice does for slices.
func SameMap[M ~map[K]V, K comparable, V any](a, b M) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

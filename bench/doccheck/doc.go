// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package doccheck tests the documentation against the code: links, names and ids refer to
// something that exists, code in Go and JSON compiles and is accepted, and comments are in
// plain English.
package doccheck

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package doccheck tests that the documentation is true to the code: links, names and ids refer to
// something that exists, and code in Go and JSON compiles and is accepted.
package doccheck

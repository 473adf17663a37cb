// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package offline

import "os"

// foreign is for systems whose files have other permissions.
func foreign(os.FileInfo) bool { return false }

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"os"
	"runtime"
)

// WorldWritable reports whether every user of the machine may change a file. On Windows, whose files have
// access control lists instead, it returns false.
func WorldWritable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode()&0o002 != 0
}

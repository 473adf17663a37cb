// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import "sync/atomic"

var keepBytes atomic.Bool

// KeepBytes makes clients that are created after the call keep the bytes of resources
// as they were received, in ResourceStatus.Raw. Packages that serve the bytes, such
// as csds, call it in their init functions, before there are clients. See "Cost".
func KeepBytes() { keepBytes.Store(true) }

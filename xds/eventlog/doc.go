// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventlog provides records of the events of channels and XdsClients: as the latest
// events of a Journal, and as lines of a Log. Packages xds and integrate use it; programs do
// not.
//
// A [Log] writes lines to a [log/slog.Logger] on a goroutine of its own, so neither a slow
// Logger nor one that calls back into its client delays anything. Repeated lines are
// suppressed, and so are similar ones above a limit, since thousands of resources or clusters
// can fail at once. The next line that is written has the number of suppressed ones.
//
// A [Journal] is a ring of the latest events. Repeated events are merged into one with a count.
package eventlog

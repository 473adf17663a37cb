// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
)

// usesXDS reports whether the channel's credentials use the TLS configuration of clusters.
func (b *channel) usesXDS() bool { return xdstls.UsesXDS(&b.buildOpts) }

// refuses reports whether the channel's credentials cannot provide the TLS that a leaf
// requires, although they must (A29). The leaf's endpoints are not connected in this case.
func (b *channel) refuses(l *picker.Leaf) bool {
	return l.TLS != nil && xdstls.UsesForeign(&b.buildOpts)
}

// refuse removes the endpoints of a leaf whose names are refused, and sets the reason.
func (b *channel) refuse(l *picker.Leaf) {
	const why = "the channel's credentials (%T) use xDS, and do not support xdslb's TLS settings: use integrate.NewCredentials, and pass them to the channel unwrapped"
	l.Priorities, l.Outlier = nil, nil
	l.ResolutionNote = plainError(fmt.Sprintf("it demands TLS (transport_socket of the Cluster resource), and "+why, xdstls.Of(&b.buildOpts)))
	if _, noted := refusalsNoted.LoadOrStore(b.buildOpts.Target.URL.String(), true); !noted {
		b.rec.write(slog.LevelError, fmt.Sprintf("xdslb: RPCs of a cluster fail, since it demands TLS, and "+why+". This is logged once per target.",
			xdstls.Of(&b.buildOpts)), l.Name)
	}
}

// refusalsNoted has the targets for which refuse has logged a line.
var refusalsNoted sync.Map

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"sync/atomic"

	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
)

// common is the part of a leaf that its priorities, endpoints and connections share. A
// connection never leaves its leaf.
type common struct {
	*channel
	entry       entry
	cluster     string // its name
	cfg         *picker.Leaf
	name        string          // cfg's; never changes
	security    *xdstls.Cluster // nil without xDS
	breaker     *counters.Breaker
	load        *picker.ClusterLoad
	stopReports func()                      // ends load reporting
	metrics     atomic.Pointer[metricNames] // forwarded by load reports
	wrr         atomic.Pointer[wrrConfig]   // nil unless endpoints report their weights
	rejected    *rejections                 // see rejections; nil until they are needed
	consecutive *consecutive                // nil unless consecutive failures are detected
	lastErr     error                       // of the latest connection attempt that failed
	errs        map[*endpoint]error         // the errors of endpoints in TRANSIENT_FAILURE
	// replacements maps a connection to its replacement, and a replacement to the connection
	// that it replaces; nil if there are no replacements. See conn.
	replacements map[*conn]*conn
	watches      map[*conn]*healthWatch // nil unless the cluster has a health check
	// replacementFailed is set once it has been logged that the latest TLS settings fail.
	replacementFailed bool
	// hosts has the hostnames of connections by their addresses, for handshakes; nil unless the
	// channel has xDS credentials.
	hosts map[*conn]map[string]*xdstls.Host
}

// noteError records the latest connection error of an endpoint of a priority.
func (l *common) noteError(t *tally, err error) {
	was := l.lastErr
	l.lastErr = err
	if was != nil && err != nil && was.Error() != err.Error() {
		t.note(connError)
	}
}

// delegates reports whether child policies connect the endpoints: see group.
func (l *common) delegates() bool { return delegates(&l.cfg.Policy) }

func delegates(p *picker.Policy) bool { return p.Kind.Traits().Connects }

// selects reports whether a child policy selects the one endpoint that picks use: pick_first.
func selects(k picker.PolicyKind) bool { return k.Traits().Connects && !k.Traits().Delegates }

// checksHealth reports whether connections of the leaf are READY only once a health check reports
// READY.
func (l *common) checksHealth() bool { return l.cfg.HealthCheck != nil || l.channel.checksHealth() }

// onDemand reports whether endpoints connect only when an RPC needs them.
func (l *common) onDemand() bool { return l.cfg.Policy.Kind.Traits().OnDemand }

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"slices"
	"sync"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/compare"
	"github.com/xdslb/xdslb/integrate/internal/rollout"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/overlay"
)

// comparison returns the input of a comparison of a channel with google.golang.org/grpc/xds.
func (c *Config) comparison(cfg *picker.Config, resources []xds.ResourceStatus, source *overlay.Source, patches []report.PatchStatus) *compare.Input {
	in := &compare.Input{
		Config: cfg, Resources: resources,
		Options: compare.Options{
			Bootstrap: len(c.Bootstrap) > 0, Delta: c.Delta, KeepDeleted: c.Resources.KeepDeleted, DialOptions: len(c.ControlPlaneDialOptions) > 0,
			RetryThrottling: c.RetryThrottling.MaxTokens > 0, LocalCluster: c.LocalCluster, HealthCheckService: c.HealthCheckService,
			DefaultMaxRequests: c.DefaultMaxRequests,
		},
	}
	for i, p := range source.Overlay().Patches() {
		if i < len(patches) && patches[i].Patch == p.String() {
			in.Patches = append(in.Patches, compare.Patch{Text: p.String(), Kind: p.Resource, Fields: p.Fields, Changed: patches[i].Changed})
		}
	}
	return in
}

// config returns the configuration in use; nil before the first one.
func (r *xdsResolver) config() *picker.Config {
	if t := r.Channel.Current(); t != nil {
		return t.Config
	}
	return nil
}

// comparison returns the input of a comparison of the channel with google.golang.org/grpc/xds.
func (r *xdsResolver) comparison(resources []xds.ResourceStatus, patches []report.PatchStatus) *compare.Input {
	in := r.opts.comparison(r.config(), resources, r.overlay, patches)
	in.Bootstrap, in.Variants = r.Bootstrap, map[string]string{}
	for _, s := range r.Client.Servers() {
		if s.InUse {
			in.Variants[s.URI] = s.Variant
		}
	}
	in.Targets = targets
	return in
}

// targets returns the number of targets of the process.
func targets() int {
	all := map[string]bool{}
	for _, c := range Channels() {
		all[c.link.Canonical] = true
	}
	return len(all)
}

// resources returns the resources that the target depends on.
func (r *xdsResolver) resources() []xds.ResourceStatus {
	return slices.Collect(r.view.TargetResources(r.Listener, r.Authority))
}

const (
	// compareAfter is the time from a configuration to its comparison, in which the resources of the
	// target and other channels arrive.
	compareAfter = time.Second
	// compareEvery is the minimum time between two comparisons.
	compareEvery = time.Minute
)

// comparing is the Watcher of a channel. After a configuration it compares the channel with
// google.golang.org/grpc/xds, for the metric, and logs each feature once with which a roll-back would
// lose RPCs. Programs that do not link that package cannot roll back without a rebuild, and log nothing.
type comparing struct {
	*balancer.Balancer
	resolver *xdsResolver

	mu     sync.Mutex
	timer  *time.Timer // runs if a comparison is due
	last   time.Time   // of the latest comparison
	closed bool
}

// Update implements xds.Watcher.
func (c *comparing) Update(cfg *picker.Config) {
	c.Balancer.Update(cfg)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.timer != nil {
		return
	}
	c.timer = time.AfterFunc(max(compareAfter, compareEvery-time.Since(c.last)), c.compare)
}

// compare compares the channel.
func (c *comparing) compare() {
	r := c.resolver
	resources := r.resources()
	losses := compare.Losses(compare.Differences(r.comparison(resources, patches(r.overlay, slices.Values(resources)))))
	r.losses.Store(int64(len(losses)))
	if len(losses) > 0 && rollout.Stock() != nil {
		rollout.NoteLosses(r.Channel.Target, losses, r.opts.Logger)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer, c.last = nil, time.Now()
}

// close stops the comparisons.
func (c *comparing) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
}

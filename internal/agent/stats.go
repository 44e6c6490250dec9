/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"hash/fnv"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hawser-io/hawser/internal/agent/operation"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/agent/report"
	"github.com/hawser-io/hawser/internal/driver"
)

const (
	// DefaultStatsPeriod is the time between two readings of the volumes' figures.
	DefaultStatsPeriod = time.Minute
	statsJitter        = 0.5
	// DefaultExaminationPeriod is the least time between two examinations of the volumes. With the node's share and an
	// access that does not answer, a volume that falls sick is reported within 90 seconds.
	DefaultExaminationPeriod = time.Minute
	mostOfShare              = 0.3
)

// examineVolumes finds out at the start, and now and then, whether what is mounted still works.
func (a *Agent) examineVolumes(ctx context.Context) {
	period := a.ExaminationPeriod + time.Duration(share(a.NodeName)*mostOfShare*float64(a.ExaminationPeriod))
	for {
		a.views.Range(func(_, view any) bool {
			if r := view.(*record.Record); r != nil {
				go a.examine(ctx, r)
			}
			return ctx.Err() == nil
		})
		select {
		case <-ctx.Done():
			return
		case <-a.Clock.After(period):
		}
	}
}

// share is a number from 0 to 1 of the node's own, so that not all nodes ask one server at the same time.
func share(node string) float64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // cannot fail
	return float64(h.Sum32()) / math.MaxUint32
}

// examine reports whether the volume is sick.
func (a *Agent) examine(ctx context.Context, r *record.Record) bool {
	if r.ShutDown { // by the agent itself
		return false
	}
	return a.steps.Examine(ctx, a.volume(r.VolumeName), r)
}

// examineAgain examines one volume beside what is examined now and then.
func (a *Agent) examineAgain(name string) {
	if view, _ := a.views.Load(name); view != nil {
		if r := view.(*record.Record); r != nil {
			a.examine(a.steps.Lifetime, r)
		}
	}
}

// readStats asks the drivers now and then how full their volumes are, and whether these and the storage are healthy.
func (a *Agent) readStats(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.Clock.After(wait.Jitter(a.StatsPeriod, statsJitter)):
		}
		a.views.Range(func(_, view any) bool {
			if r := view.(*record.Record); r != nil {
				go a.readStatsOf(ctx, r)
			}
			return ctx.Err() == nil
		})
		for _, d := range a.Registry.Drivers() {
			go a.readStorageHealth(ctx, d.Name)
		}
	}
}

// readStatsOf reads one volume's figures and its health. The health is asked for whatever became of the figures, the
// stage and the publication: what does not work may have none of them. A driver that hangs keeps one goroutine until
// the deadlines. It keeps a thread of its own for each call about a volume that does not answer, also after the
// deadline, so it is not asked for the figures of one.
func (a *Agent) readStatsOf(ctx context.Context, r *record.Record) {
	v := a.volume(r.VolumeName)
	d, known := a.statsReader(r.Driver)
	req := driver.StatsRequest{Handle: r.Handle, StagingPath: r.Stage.Path, Path: publishedPath(r)}
	if !known || !r.MayHaveMounts() || !v.BeginStats() {
		return
	}
	defer v.EndStats()
	if req.Path != "" && !r.Hangs() && a.capable(r.Driver, "GET_VOLUME_STATS") {
		a.readFigures(ctx, d, v, req)
	}
	if a.capable(r.Driver, "GET_VOLUME_HEALTH") {
		a.readHealth(ctx, d, v, req)
	}
	a.queue.add(r.VolumeName)
}

// statsReader returns the driver if it reports about its volumes.
func (a *Agent) statsReader(driverName string) (driver.StatsReader, bool) {
	known, _ := a.Registry.Get(driverName)
	d, ok := known.(driver.StatsReader)
	return d, ok
}

// readFigures and readHealth ask the driver, each with the deadline of a driver's call.
func (a *Agent) readFigures(ctx context.Context, d driver.StatsReader, v *operation.Volume, req driver.StatsRequest) {
	ctx, cancel := context.WithTimeout(ctx, a.DriverTimeout)
	defer cancel()
	s, err := d.Stats(ctx, req)
	if err != nil {
		a.Log.Info("figures not read", "volume", v.Name, "error", err.Error())
		return
	}
	v.SetFigures(&report.Figures{Capacity: s.Capacity, Used: s.Used, Available: s.Available, Inodes: s.Inodes,
		InodesUsed: s.InodesUsed})
	if s.HasHealth {
		v.NoteHealth(s.Problems)
	}
}

func (a *Agent) readHealth(ctx context.Context, d driver.StatsReader, v *operation.Volume, req driver.StatsRequest) {
	ctx, cancel := context.WithTimeout(ctx, a.DriverTimeout)
	defer cancel()
	problems, err := d.VolumeHealth(ctx, req)
	if err != nil {
		a.Log.Info("health not read", "volume", v.Name, "error", err.Error())
		return
	}
	v.NoteHealth(problems)
}

// readStorageHealth asks one driver about what stores its volumes. A driver that hangs keeps one goroutine until the
// deadline.
func (a *Agent) readStorageHealth(ctx context.Context, driverName string) {
	d, known := a.statsReader(driverName)
	if !known || !a.capable(driverName, "GET_STORAGE_HEALTH") {
		return
	}
	if _, asked := a.storageAsked.LoadOrStore(driverName, true); asked {
		return
	}
	defer a.storageAsked.Delete(driverName)
	ctx, cancel := context.WithTimeout(ctx, a.DriverTimeout)
	defer cancel()
	problems, err := d.StorageHealth(ctx)
	if err != nil {
		a.Log.Info("health of the storage not read", "driver", driverName, "error", err.Error())
		return
	}
	if a.node.NoteStorageHealth(driverName, problems, a.Clock.Now()) {
		a.state.ReportSoon()
	}
}

func publishedPath(r *record.Record) string {
	for _, u := range r.Uses {
		if u.Phase == record.PhaseDone && u.Target != "" {
			return u.Target
		}
	}
	return ""
}

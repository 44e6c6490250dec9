/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/server"
	"github.com/hawser-io/hawser/internal/version"
)

// logLines is how much of each log a bundle has.
const logLines = 2000

// ownLabel and ownName are on Hawser's own pods: its namespace may have others.
const ownLabel, ownName = "app.kubernetes.io/name", "hawser"

// mostListed is how many objects of a kind a bundle has at most, and listedAtOnce how many are read at once: a node
// state may have a megabyte.
const (
	mostListed   = 5000
	listedAtOnce = 100
)

// bundle collects what helps to explain a cluster to others. It has no Secret.
type bundle struct {
	*options
	file  string
	index []string
	tar   *tar.Writer
	// broken is true if an error ended a list that the user may read.
	broken bool
}

// errBroken ends a bundle that lacks what it should have.
var errBroken = errors.New("the archive is not complete: errors ended lists, which index.txt in it has")

func newBundle(o *options) *cobra.Command {
	b := &bundle{options: o}
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write objects, events and logs into an archive, without Secrets",
		Long: "Write objects, events and logs into an archive. It has no Secret, and leaves out what the user may not\n" +
			"read; index.txt in it lists both. Names of objects and messages of drivers are in it: read it before you send it.",
		Args: cobra.NoArgs,
		RunE: o.plain(b.run),
	}
	cmd.Flags().StringVar(&b.file, "file", "hawser-support.tar.gz", "the archive; it must not exist")
	return cmd
}

// kept is a list of a bundle.
type kept struct {
	name    string
	list    client.ObjectList
	options []client.ListOption
}

// kept are the lists of a bundle, by the name of their file.
func (b *bundle) kept() []kept {
	system, own := client.InNamespace(b.system), client.MatchingLabels{ownLabel: ownName}
	return []kept{
		{"intents", &volumesv1alpha1.VolumeAttachmentIntentList{}, nil},
		{"intentsets", &volumesv1alpha1.VolumeAttachmentIntentSetList{}, nil},
		{"nodestates", &volumesv1alpha1.NodeVolumeStateList{}, nil},
		{"volumemanagers", &volumesv1alpha1.VolumeManagerList{}, nil},
		{"volumeattachments", &storagev1.VolumeAttachmentList{}, nil},
		{"csinodes", &storagev1.CSINodeList{}, nil},
		{"csidrivers", &storagev1.CSIDriverList{}, nil},
		{"storageclasses", &storagev1.StorageClassList{}, nil},
		{"persistentvolumes", &corev1.PersistentVolumeList{}, nil},
		{"persistentvolumeclaims", &corev1.PersistentVolumeClaimList{}, nil},
		{"nodes", &corev1.NodeList{}, nil},
		{"events", &corev1.EventList{}, nil},
		{"system-pods", &corev1.PodList{}, []client.ListOption{system, own}},
		{"system-locks", &corev1.ConfigMapList{}, []client.ListOption{system,
			client.HasLabels{volumesv1alpha1.ExclusiveLocksLabel}}},
	}
}

func (b *bundle) run(ctx context.Context, g *facts.Gatherer, _ []string) (err error) {
	if err := g.FindSystem(ctx); err != nil {
		return err
	}
	b.system = g.System
	file, err := os.OpenFile(b.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("creating the archive: %w", err)
	}
	packed := gzip.NewWriter(file)
	b.tar = tar.NewWriter(packed)
	b.index = []string{"kubectl-hawser " + version.Version, "made " + b.now().UTC().Format(time.RFC3339)}
	b.objects(ctx, g)
	b.logs(ctx, g)
	err = b.add("index.txt", []byte(strings.Join(b.index, "\n")+"\n"))
	for _, closer := range []io.Closer{b.tar, packed, file} {
		if failed := closer.Close(); err == nil {
			err = failed
		}
	}
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	if _, err = fmt.Fprintln(b.Out, b.file); err != nil {
		return err
	}
	if ctx.Err() == nil && b.broken {
		return errBroken
	}
	return ctx.Err() // an archive of what was read until then
}

// objects adds each list. What cannot be read is in the index; the time limit ends the collection, not the archive.
func (b *bundle) objects(ctx context.Context, g *facts.Gatherer) {
	for _, k := range b.kept() {
		var out bytes.Buffer
		n, more, err := k.write(ctx, g.Reader, &out)
		if n > 0 || err == nil {
			err = errors.Join(err, b.add(k.name+".yaml", out.Bytes()))
		}
		b.ended(n, err)
		switch {
		case err != nil && n > 0:
			b.index = append(b.index, fmt.Sprintf("%s: only the first %d: %v", k.name, n, err))
		case err == nil && more:
			b.index = append(b.index, fmt.Sprintf("%s: only the first %d", k.name, n))
		default:
			b.note(k.name, err)
		}
	}
}

// write reads a list in pages, and writes its objects without what may be secret. It returns how many, and whether
// there may be more.
func (k kept) write(ctx context.Context, r client.Reader, out *bytes.Buffer) (n int, more bool, err error) {
	for next := ""; n < mostListed; {
		list := k.list.DeepCopyObject().(client.ObjectList) // each page has its own memory
		options := append([]client.ListOption{client.Limit(listedAtOnce), client.Continue(next)}, k.options...)
		if err := r.List(ctx, list, options...); err != nil {
			return n, true, err
		}
		if err := writeItems(out, list); err != nil {
			return n, true, err
		}
		n += meta.LenList(list)
		if next = list.GetContinue(); next == "" {
			return n, false, nil
		}
	}
	return n, true, nil
}

// ended remembers whether an error ended a list of which so many objects were read. What the user may not read, or the
// API server does not serve, is left out on purpose.
func (b *bundle) ended(n int, err error) {
	b.broken = b.broken || err != nil && (n > 0 || !facts.Denied(err) && !facts.NoKind(err))
}

func (b *bundle) note(name string, err error) {
	if err != nil {
		b.index = append(b.index, name+": left out: "+err.Error())
		return
	}
	b.index = append(b.index, name+": complete")
}

func writeItems(out *bytes.Buffer, list client.ObjectList) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		object := item.(client.Object)
		redact(object)
		text, err := yaml.Marshal(object)
		if err == nil {
			out.WriteString("---\n")
			out.Write(text)
		}
		return err
	})
}

// logs adds the logs of Hawser's own pods.
func (b *bundle) logs(ctx context.Context, g *facts.Gatherer) {
	r, ok := g.Reader.(*server.Reader)
	if !ok {
		return
	}
	pods, err := r.Clientset.CoreV1().Pods(b.system).List(ctx, listOptions())
	if err != nil {
		b.ended(0, err)
		b.note("logs", err)
		return
	}
	if len(pods.Items) == 0 {
		b.index = append(b.index, "logs: none: namespace "+b.system+" has no pod of Hawser; if another one has, name it "+
			"with --hawser-namespace")
	}
	if pods.Continue != "" {
		b.index = append(b.index, fmt.Sprintf("logs: only of the first %d pods", len(pods.Items)))
	}
	for i := range pods.Items {
		for _, container := range pods.Items[i].Spec.Containers {
			name := "logs/" + pods.Items[i].Name + "/" + container.Name + ".log"
			lines := int64(logLines)
			text, err := r.Clientset.CoreV1().Pods(b.system).GetLogs(pods.Items[i].Name,
				&corev1.PodLogOptions{Container: container.Name, TailLines: &lines}).Do(ctx).Raw()
			if err == nil {
				err = b.add(name, text)
			}
			b.note(name, err)
		}
	}
}

func (b *bundle) add(name string, data []byte) error {
	header := &tar.Header{Name: "hawser-support/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.now()}
	if err := b.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err := b.tar.Write(data)
	return err
}

func listOptions() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: ownLabel + "=" + ownName, Limit: mostListed}
}

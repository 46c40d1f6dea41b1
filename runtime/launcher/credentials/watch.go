package credentials

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	v1 "kubevirt.io/api/core/v1"
)

// kubeletData is the link by whose replacement the kubelet changes all keys of a Secret at once.
const kubeletData = "..data"

// Watch calls changed after each change of a Secret below root that the agent's part of
// list uses, until ctx is done.
func Watch(ctx context.Context, root string, list []v1.AccessCredential, changed func(), log *slog.Logger) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching Secrets: %w", err)
	}
	for i, credential := range list {
		if !ThroughAgent(credential) {
			continue
		}
		if err := watcher.Add(Dir(root, i)); err != nil {
			_ = watcher.Close()
			return fmt.Errorf("watching the Secret of accessCredentials[%d]: %w", i, err)
		}
	}
	go func() {
		defer func() { _ = watcher.Close() }()
		for {
			select {
			case <-ctx.Done():
				return
			case err := <-watcher.Errors:
				log.Warn("Failed to watch a Secret", "err", err)
				changed() // events may be lost
			case event := <-watcher.Events:
				if event.Has(fsnotify.Create) && filepath.Base(event.Name) == kubeletData {
					changed()
				}
			}
		}
	}()
	return nil
}

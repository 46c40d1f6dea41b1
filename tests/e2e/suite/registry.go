package suite

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// pulled gets a part of an image that was pushed.
func pulled(ctx context.Context, root, path string) io.ReadCloser {
	ginkgo.GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, root+"/v2/golden/"+path, nil)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(response.StatusCode).To(gomega.Equal(http.StatusOK), path)
	ginkgo.DeferCleanup(response.Body.Close)
	return response.Body
}

// PulledDisk keeps the disk of image golden, which was pushed to the registry at root, in a file, and returns its path.
// The reference is a digest or a tag.
func PulledDisk(ctx context.Context, root, reference string) string {
	ginkgo.GinkgoHelper()
	var manifest v1.Manifest
	gomega.Expect(json.NewDecoder(pulled(ctx, root, "manifests/"+reference)).Decode(&manifest)).To(gomega.Succeed())
	gomega.Expect(manifest.Layers).To(gomega.HaveLen(1))
	layer, err := gzip.NewReader(pulled(ctx, root, "blobs/"+manifest.Layers[0].Digest.String()))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for archive := tar.NewReader(layer); ; {
		header, err := archive.Next()
		gomega.Expect(err).NotTo(gomega.HaveOccurred(), "the image holds no disk")
		gomega.Expect([]int{header.Uid, header.Gid}).To(gomega.Equal([]int{107, 107}))
		if header.Typeflag != tar.TypeReg {
			continue
		}
		gomega.Expect(header.Name).To(gomega.HavePrefix("disk/"))
		path := filepath.Join(ginkgo.GinkgoT().TempDir(), filepath.Base(header.Name))
		file, err := os.Create(path)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = io.Copy(file, archive)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(file.Close()).To(gomega.Succeed())
		return path
	}
}

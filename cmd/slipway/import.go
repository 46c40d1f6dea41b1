package main

import (
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/verbosity"
)

// newImportCommand fills a volume from a URL; the DataVolume controller runs it in a pod.
func newImportCommand() *cobra.Command {
	var o importer.PodOptions
	level := 0
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Fills a volume from a disk image",
		Long: `Fills a block device or a disk file from an image at a URL: raw, qcow2, VMDK, VHD, VHDX or VDI,
which may be packed with gzip, xz, zstd or bzip2 and lie in a tar archive, as in an OVA; or from the
disk of a container image in a registry; or with --copy-from as another volume's disk, byte for byte;
without any of them it makes a blank disk. With --archive it unpacks a tar archive into a directory.
One pass, in bounded memory. With --ask it tells which version of the image there is, and reads no more.`,
		Example: `  slipway import --url https://example.com/debian.qcow2 --checksum sha512:… --target ./disk.img --size 21474836480
  slipway import --ask --url docker://registry.example.com/disks/debian:12 --credentials-dir ./login --termination-log /dev/stdout`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Token = os.Getenv(transfer.EnvToken)
			logger := verbosity.New(level).Logger()
			ctrl.SetLogger(logger)
			return importer.RunPod(ctrl.LoggerInto(cmd.Context(), logger), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.URL, "url", "", "http or https address of the disk image, or docker://host/name:tag of a container image with a disk; empty makes a blank disk")
	flags.StringVar(&o.CopyFrom, "copy-from", "", "block device, or directory of a disk.img, whose disk is copied as it is, in the place of a URL")
	flags.StringVar(&o.Server, "source", transfer.SourceHTTP, "kind of the URL's server: http, s3, or gcs, which takes gs:// addresses too")
	flags.BoolVar(&o.Archive, "archive", false, "the file is a tar archive, to unpack into the directory --target")
	flags.StringVar(&o.Architecture, "architecture", "", "architecture of the container image (default: this machine's, where there are several)")
	flags.StringVar(&o.Checksum, "checksum", "", "algorithm:hex of the file at the URL (md5, sha1, sha256, sha512)")
	flags.StringVar(&o.Target.Path, "target", "", "block device, or the file of the disk; with --archive a directory")
	flags.Int64Var(&o.Target.Size, "size", 0, "size of the disk in bytes; 0 is the image's own")
	flags.BoolVar(&o.Target.Preallocate, "preallocate", false, "reserve the disk's full size")
	flags.StringVar(&o.ScratchDir, "scratch", "", "directory for an image that cannot be read in order (default: beside the disk's file)")
	flags.IntVar(&o.Writers, "writers", 4, "how many blocks are written at a time")
	flags.StringArrayVar(&o.Headers, "header", nil, "extra HTTP header \"Name: value\"; may be repeated")
	flags.StringVar(&o.CertDir, "cert-dir", "", "directory with PEM certificates of further authorities")
	flags.StringVar(&o.ProxyCertDir, "proxy-cert-dir", "", "directory with PEM certificates of the authorities of the proxy that http_proxy and https_proxy name")
	flags.BoolVar(&o.SkipVerify, "insecure-skip-verify", false, "take any certificate")
	flags.StringArrayVar(&o.From, "from", nil, "where the container image is looked for, as docker://host/name:tag; may be repeated: the first that gives it (default: at --url)")
	flags.StringArrayVar(&o.InsecureFrom, "insecure-from", nil, "an address of --from whose registry's certificate is not checked; may be repeated")
	flags.Int64Var(&o.BytesPerSecond, "bytes-per-second", 0, "how much is downloaded at most; 0 is no limit")
	flags.StringVar(&o.ImageRoot, "image-root", "", "folder with the files of the container image at --url, which the node has pulled: / where this program runs in it")
	flags.StringVar(&o.CredentialsDir, "credentials-dir", "", "directory with the files accessKeyId and secretKey (s3: also sessionToken; gcs: credentials.json)")
	flags.StringVar(&o.SecretHeadersDir, "secret-headers-dir", "", "directory with a directory of header files for each Secret")
	flags.BoolVar(&o.Ask, "ask", false, "tell which version of the image there is, as the result's digest, and import nothing")
	flags.BoolVar(&o.Known, "known", false, "with --ask: a version is known already, so of several registries only those are passed over that do not have the image")
	flags.StringVar(&o.TerminationLog, "termination-log", "", "file that takes the result as JSON")
	flags.StringVar(&o.ProgressAddress, "progress-address", "", "address that serves the progress, such as :8443")
	addVerbosity(flags, &level)
	return cmd
}

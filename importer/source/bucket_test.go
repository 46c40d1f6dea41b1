package source

import "testing"

func TestRegionsOfServers(t *testing.T) {
	for host, want := range map[string]string{
		"s3.eu-west-1.amazonaws.com":                  "eu-west-1",
		"s3-eu-west-1.amazonaws.com":                  "eu-west-1",
		"S3.dualstack.us-gov-west-1.amazonaws.com":    "us-gov-west-1",
		"images.s3.ap-southeast-2.amazonaws.com":      "ap-southeast-2",
		"s3-fips.us-west-2.amazonaws.com":             "us-west-2",
		"s3.cn-north-1.amazonaws.com.cn":              "cn-north-1",
		"s3.amazonaws.com":                            "us-east-1",
		"minio.storage.svc":                           "us-east-1",
		"s3.eu-west-1.amazonaws.com.evil.example.com": "us-east-1",
		"127.0.0.1": "us-east-1",
	} {
		if got := region(host); got != want {
			t.Errorf("the region of %s is %q, want %q", host, got, want)
		}
	}
}

func TestAddressesOfGoogleCloudStorage(t *testing.T) {
	for text, want := range map[string]string{
		"gs://images/a/disk one.qcow2":      "https://storage.googleapis.com/images/a/disk%20one.qcow2",
		"https://storage.example.com/b/o":   "https://storage.example.com/b/o",
		"http://fake-gcs.test:4443/b/o?x=y": "http://fake-gcs.test:4443/b/o?x=y",
	} {
		if got, err := GCSAddress(text); err != nil || got != want {
			t.Errorf("%s is at %q (%v), want %q", text, got, err, want)
		}
	}
	for _, bad := range []string{"gs://images", "gs:///disk", "gs://images/", "gs://images/disk?generation=5", "gs://images/disk#2.img"} {
		if got, err := GCSAddress(bad); err == nil {
			t.Errorf("%s is at %q", bad, got)
		}
	}
}

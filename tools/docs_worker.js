// Browsers start no worker from a page that is a file; search needs one. There it runs in a hidden frame instead.
// MkDocs Material would fetch such a script (iframe-worker) from the network, of which this does the same.
"use strict";
if (location.protocol === "file:") window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = Object.assign(document.createElement("iframe"), { hidden: true });
    document.body.append(frame);
    const inside = this.inside = frame.contentWindow;
    const load = address => new Promise(done => {
      const script = Object.assign(inside.document.createElement("script"), { src: address, onload: done });
      inside.document.body.append(script);
    });
    inside.importScripts = (...addresses) => addresses.reduce((before, each) => before.then(() => load(new URL(each, url))), Promise.resolve());
    inside.postMessage = data => {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    };
    this.ready = load(url);
  }
  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
  terminate() {
    this.inside.frameElement.remove();
  }
};

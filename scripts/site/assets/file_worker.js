// The theme searches in a Worker, and browsers start none for pages that are opened as files. There the script runs in a
// hidden frame instead, which has the Worker's messages. The theme would fetch such a shim from the network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const load = address => new Promise((loaded, failed) => {
        const script = inside.document.createElement("script");
        script.src = address;
        script.onload = loaded;
        script.onerror = failed;
        inside.document.head.append(script);
      });
      const deliver = (target, data) => setTimeout(() => {
        const event = new MessageEvent("message", {data});
        target.dispatchEvent(event);
        if (target === this && this.onmessage) this.onmessage(event);
      });
      inside.postMessage = data => deliver(this, data);
      inside.importScripts = (...addresses) => Promise.all(addresses.map(load));
      this.ready = load(url);
      this.postMessage = data => this.ready.then(() => deliver(inside, data));
    }
    terminate() {}
  };
}
